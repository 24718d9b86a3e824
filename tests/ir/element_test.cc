// Single elements: every type's values, limits and texts.
#include "ir/base/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace opwire {
namespace {

double Round(DType dtype, double value) {
  const uint64_t bits = ElementBits(dtype, value);
  return ElementValue(dtype, &bits);
}

std::string Text(DType dtype, double value) {
  const uint64_t bits = ElementBits(dtype, value);
  return ElementText(dtype, &bits);
}

TEST(ElementTest, SmallWholeNumbersAreExactInEveryType) {
  for (int t = 1; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    for (const int64_t v : {0, 1}) {
      EXPECT_EQ(Round(dtype, static_cast<double>(v)), v) << DTypeName(dtype);
      EXPECT_EQ(ElementBits(dtype, v), ElementBits(dtype, static_cast<double>(v)))
          << DTypeName(dtype);
    }
    if (kBoolean.Has(dtype)) continue;
    EXPECT_EQ(Text(dtype, 3), "3") << DTypeName(dtype);
    if (kUnsigned.Has(dtype)) continue;
    EXPECT_EQ(Text(dtype, -3), "-3") << DTypeName(dtype);
  }
}

TEST(ElementTest, RealNumbersSaturateAndNanIsZero) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU64,
                            DType::kU32, DType::kU16, DType::kU8}) {
    EXPECT_EQ(Round(dtype, std::nan("")), 0) << DTypeName(dtype);
    const int bits = static_cast<int>(8 * DTypeBytes(dtype)) - kSigned.Has(dtype);
    EXPECT_EQ(Text(dtype, 1e30), Text(dtype, std::numeric_limits<double>::infinity()))
        << DTypeName(dtype);
    EXPECT_EQ(Round(dtype, 1e30), bits > 52 ? std::ldexp(1, bits) : std::ldexp(1, bits) - 1)
        << DTypeName(dtype);
    EXPECT_EQ(Round(dtype, -1e30), kSigned.Has(dtype) ? -std::ldexp(1, bits) : 0)
        << DTypeName(dtype);
    EXPECT_EQ(Round(dtype, 2.9), 2) << DTypeName(dtype);
  }
  EXPECT_EQ(Text(DType::kU64, 1e30), "18446744073709551615");
  EXPECT_EQ(Text(DType::kI64, -1e30), "-9223372036854775808");
}

TEST(ElementTest, WholeNumbersKeepAllTheirBits) {
  const int64_t large = std::numeric_limits<int64_t>::max();
  const uint64_t bits = ElementBits(DType::kI64, large);
  EXPECT_EQ(ElementText(DType::kI64, &bits), "9223372036854775807");
  EXPECT_EQ(ElementBits(DType::kU8, int64_t{257}), 1u) << "wraps around";
}

TEST(ElementTest, FloatsRoundAndPrint) {
  EXPECT_EQ(Round(DType::kBF16, 1.005), 1.0078125);
  EXPECT_EQ(Round(DType::kF16, 65519), 65504);
  EXPECT_TRUE(std::isnan(Round(DType::kF8E4M3, 1000)));
  EXPECT_EQ(Text(DType::kF32, 0.1), "0.1");
  EXPECT_EQ(Text(DType::kF64, 0.1), "0.1");
  EXPECT_EQ(Text(DType::kF16, 0.1), "0.09998");
  EXPECT_EQ(Text(DType::kBF16, 0.1), "0.1");
  EXPECT_EQ(Text(DType::kBool, 2), "true");
  EXPECT_EQ(Text(DType::kBool, 0), "false");
}

// Elements of packed arrays lie anywhere.
TEST(ElementTest, NeedsNoAlignment) {
  const double v = 1.5;
  char bytes[9];
  std::memcpy(bytes + 1, &v, sizeof(v));
  EXPECT_EQ(ElementValue(DType::kF64, bytes + 1), 1.5);
}

}  // namespace
}  // namespace opwire

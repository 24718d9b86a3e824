// The suite's own rounding, against libm.
#include "tests/conformance/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/seed.h"

namespace opwire::conformance {
namespace {

struct Precision {
  DType type;
  int bits, least, most;
};

TEST(Rounding, AgreesWithLibm) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  for (const Precision& f :
       {Precision{DType::kF64, 53, -1022, 1023}, Precision{DType::kF32, 24, -126, 127},
        Precision{DType::kF16, 11, -14, 15}, Precision{DType::kBF16, 8, -126, 127},
        Precision{DType::kF8E5M2, 3, -14, 15}, Precision{DType::kF8E4M3, 4, -6, 8}}) {
    SCOPED_TRACE(DTypeName(f.type));
    for (int i = 0; i < 100'000; ++i) {
      const int exponent = static_cast<int>(random() % 300) - 150;
      Real value = std::ldexp(static_cast<Real>(random() >> (random() % 64)), exponent);
      if (random() % 2) value = -value;
      if (i < 2) value = i == 0 ? Real{0} : -Real{0};
      const int at = value == 0 ? f.least : std::clamp(std::ilogb(value), f.least, f.most);
      const Real ulp = std::ldexp(Real{1}, at - f.bits + 1);
      ASSERT_EQ(Ulp(f.type, value), ulp) << value;
      const Real want = std::nearbyint(value / ulp) * ulp, got = Rounded(f.type, value);
      if (std::fabs(want) <= Largest(f.type))
        ASSERT_EQ(got, want) << value;
      else
        ASSERT_FALSE(std::isfinite(got)) << value;
      if (!std::isfinite(got)) continue;
      ASSERT_EQ(std::signbit(got), std::signbit(value)) << value;
      uint64_t bits = 0;
      Encode(f.type, value, &bits);
      ASSERT_EQ(Decode(f.type, &bits), got) << value;
    }
  }
}

TEST(Rounding, LargestNumbers) {
  EXPECT_EQ(Largest(DType::kF8E4M3), 448);
  EXPECT_EQ(Largest(DType::kF8E5M2), 57344);
  EXPECT_EQ(Largest(DType::kF16), 65504);
  EXPECT_EQ(Largest(DType::kF32), std::numeric_limits<float>::max());
  EXPECT_EQ(Largest(DType::kF64), std::numeric_limits<double>::max());
  EXPECT_TRUE(std::isnan(Rounded(DType::kF8E4M3, 464.1L)));
  EXPECT_EQ(Rounded(DType::kF8E4M3, 463.9L), 448);
  EXPECT_TRUE(std::isinf(Rounded(DType::kF16, 65520)));
}

}  // namespace
}  // namespace opwire::conformance

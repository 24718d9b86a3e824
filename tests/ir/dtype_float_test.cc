// Element types, and the conversions of small floats against doubles: all values, all ties between
// neighbours.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "ir/base/dtype.h"
#include "ir/base/float.h"
#include "tests/seed.h"

namespace opwire {
namespace {

TEST(DType, NamesAreOneToOne) {
  std::set<std::string> names;
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_TRUE(IsValid(t));
    EXPECT_EQ(ParseDType(DTypeName(t)), t);
    EXPECT_TRUE(names.insert(std::string(DTypeName(t))).second);
    EXPECT_GT(DTypeBytes(t), 0);
    EXPECT_TRUE(kAll.Has(t));
  }
  EXPECT_FALSE(IsValid(static_cast<DType>(kDTypeCount)));
  EXPECT_FALSE(IsValid(DType::kInvalid));
  EXPECT_EQ(ParseDType("f33"), std::nullopt);
  EXPECT_EQ(ParseDType("invalid"), std::nullopt);
  EXPECT_EQ(DTypeName(static_cast<DType>(200)), "invalid");
  for (int i = 0; i < kEncodingCount; ++i)
    EXPECT_EQ(ParseEncoding(EncodingName(static_cast<Encoding>(i))), static_cast<Encoding>(i));
  EXPECT_EQ(EncodingName(static_cast<Encoding>(kEncodingCount)), "invalid");
  EXPECT_EQ(kFloats.ToString(), "f64, f32, f16, bf16");
  EXPECT_TRUE((kAll - kFloats - kIntegers - kBoolean - kFloat8s).Empty());
}

struct Format {
  const char* name;
  int bits;
  int max_code;  // of the largest finite magnitude
  bool infinities;
  std::function<float(uint32_t)> expand;
  std::function<uint32_t(float)> round;
};

const Format kFormats[] = {
    {"f16", 16, 0x7bff, true, [](uint32_t c) { return F16ToFloat(static_cast<uint16_t>(c)); },
     FloatToF16},
    {"bf16", 16, 0x7f7f, true, [](uint32_t c) { return BF16ToFloat(static_cast<uint16_t>(c)); },
     FloatToBF16},
    {"f8e4m3", 8, 0x7e, false, [](uint32_t c) { return F8E4M3ToFloat(static_cast<uint8_t>(c)); },
     [](float f) { return FloatToF8E4M3(f); }},
    {"f8e5m2", 8, 0x7b, true, [](uint32_t c) { return F8E5M2ToFloat(static_cast<uint8_t>(c)); },
     [](float f) { return FloatToF8E5M2(f); }},
};

class SmallFloat : public testing::TestWithParam<Format> {};

TEST_P(SmallFloat, EveryCodeRoundTrips) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < (1u << f.bits); ++code) {
    const float v = f.expand(code);
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(f.expand(f.round(v)))) << code;
      EXPECT_EQ(std::signbit(v), (code >> (f.bits - 1)) != 0) << code;
    } else {
      ASSERT_EQ(f.round(v), code) << v;
    }
  }
}

// Codes of one sign rise with their values. So rounding is right if it is right between all
// neighbours: a tie rounds to the even code, and a value one f32 step from it to the nearer code.
TEST_P(SmallFloat, RoundsEveryTieToEven) {
  const Format& f = GetParam();
  const uint32_t sign = 1u << (f.bits - 1);
  for (int code = 0; code < f.max_code; ++code) {
    const double low = f.expand(code), high = f.expand(code + 1);
    ASSERT_LT(low, high) << code;
    const double middle = (low + high) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle) << "ties are exact in f32";
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(f.round(tie), even) << tie;
    ASSERT_EQ(f.round(-tie), even | sign) << tie;
    ASSERT_EQ(f.round(std::nextafter(tie, 0.0f)), static_cast<uint32_t>(code)) << tie;
    ASSERT_EQ(f.round(std::nextafter(tie, HUGE_VALF)), static_cast<uint32_t>(code + 1)) << tie;
  }
}

TEST_P(SmallFloat, OverflowsHalfAStepAboveTheLargest) {
  const Format& f = GetParam();
  const double largest = f.expand(f.max_code), before = f.expand(f.max_code - 1);
  const double edge = largest + (largest - before) / 2;
  if (edge <= std::numeric_limits<float>::max()) {
    EXPECT_EQ(f.round(std::nextafter(static_cast<float>(edge), 0.0f)),
              static_cast<uint32_t>(f.max_code));
  }
  const float beyond = edge <= std::numeric_limits<float>::max()
                           ? std::nextafter(static_cast<float>(edge), HUGE_VALF)
                           : HUGE_VALF;
  for (float v : {beyond, HUGE_VALF, std::numeric_limits<float>::max()}) {
    const float back = f.expand(f.round(v));
    EXPECT_TRUE(f.infinities ? std::isinf(back) : std::isnan(back)) << v;
    const float negative = f.expand(f.round(-v));
    EXPECT_TRUE(f.infinities ? negative == -HUGE_VALF : std::isnan(negative)) << v;
  }
  EXPECT_EQ(f.round(0.0f), 0u);
  EXPECT_EQ(f.round(-0.0f), 1u << (f.bits - 1));
  EXPECT_EQ(f.round(std::numeric_limits<float>::denorm_min()), 0u);
}

TEST_P(SmallFloat, RandomValuesGoToANearestCode) {
  const Format& f = GetParam();
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 200000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    const uint32_t code = f.round(v);
    const float back = f.expand(code);
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(back)) << "seed " << seed;
      continue;
    }
    if (!std::isfinite(back)) continue;
    const double error = std::abs(static_cast<double>(v) - back);
    const uint32_t magnitude = code & ((1u << (f.bits - 1)) - 1);
    for (uint32_t other : {magnitude - 1, magnitude + 1}) {
      if (other > static_cast<uint32_t>(f.max_code)) continue;
      ASSERT_LE(error, std::abs(std::abs(static_cast<double>(v)) - f.expand(other)))
          << v << " seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloat, testing::ValuesIn(kFormats),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(Float8, Saturates) {
  EXPECT_EQ(F8E4M3ToFloat(FloatToF8E4M3(1e9f, true)), 448.0f);
  EXPECT_EQ(F8E4M3ToFloat(FloatToF8E4M3(-HUGE_VALF, true)), -448.0f);
  EXPECT_EQ(F8E5M2ToFloat(FloatToF8E5M2(1e9f, true)), 57344.0f);
  EXPECT_EQ(F8E5M2ToFloat(FloatToF8E5M2(-HUGE_VALF, true)), -57344.0f);
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(FloatToF8E4M3(NAN, true))));
  EXPECT_TRUE(std::isnan(F8E5M2ToFloat(FloatToF8E5M2(NAN, true))));
  EXPECT_EQ(F8E4M3ToFloat(FloatToF8E4M3(448.0f)), 448.0f);
}

}  // namespace
}  // namespace opwire

// The meaning of primitives at their corners, as ir/ops/expr.h states it, and conversions that
// round once.
#include "ir/scalar/primitives.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/scalar/scalar.h"
#include "kernels/ops/create/random.h"

namespace opwire::ops {
namespace {

template <typename C>
C Two(Prim p, C a, C b) {
  bool divided = false;
  const C v = Binary(p, a, b, &divided);
  EXPECT_EQ(divided,
            !std::is_floating_point_v<C> && b == C{0} && (p == Prim::kDiv || p == Prim::kRem));
  return v;
}

TEST(Primitives, IntegersWrapAndNeverFault) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min(),
                    kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Two<int32_t>(Prim::kAdd, kMax, 1), kMin);
  EXPECT_EQ(Two<int32_t>(Prim::kMul, kMin, -1), kMin);
  EXPECT_EQ(Two<int32_t>(Prim::kDiv, 7, 0), 0);
  EXPECT_EQ(Two<int32_t>(Prim::kRem, 7, 0), 0);
  EXPECT_EQ(Two<int32_t>(Prim::kDiv, kMin, -1), kMin);
  EXPECT_EQ(Two<int32_t>(Prim::kRem, kMin, -1), 0);
  EXPECT_EQ(Two<int32_t>(Prim::kDiv, -7, 2), -3);
  EXPECT_EQ(Two<int32_t>(Prim::kRem, -7, 2), -1);
  EXPECT_EQ(Two<uint16_t>(Prim::kMul, 65535, 65535), 1);
  EXPECT_EQ(Two<int8_t>(Prim::kAdd, 127, 1), -128);
  EXPECT_EQ(Unary<int32_t>(Prim::kAbs, kMin), kMin);
  EXPECT_EQ(Unary<int32_t>(Prim::kNeg, kMin), kMin);
  EXPECT_EQ(Unary<int8_t>(Prim::kSign, -5), -1);
}

TEST(Primitives, ShiftsMaskAndPowersFollowTheRule) {
  EXPECT_EQ(Two<int8_t>(Prim::kShl, 1, 9), 2);
  EXPECT_EQ(Two<int64_t>(Prim::kShr, -8, 65), -4);
  EXPECT_EQ(Two<uint32_t>(Prim::kShr, 0x80000000u, 31), 1u);
  EXPECT_EQ(Two<int32_t>(Prim::kPow, 3, 4), 81);
  EXPECT_EQ(Two<int32_t>(Prim::kPow, 2, -1), 0);
  EXPECT_EQ(Two<int32_t>(Prim::kPow, -1, -3), -1);
  EXPECT_EQ(Two<int32_t>(Prim::kPow, 1, -3), 1);
  EXPECT_EQ(Two<int32_t>(Prim::kPow, 2, 33), 0);
}

TEST(Primitives, MinAndMaxPropagateNanAndOrderZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Two<float>(Prim::kMax, nan, 1)));
  EXPECT_TRUE(std::isnan(Two<float>(Prim::kMin, 1, nan)));
  EXPECT_FALSE(std::signbit(Two<float>(Prim::kMax, -0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(Two<float>(Prim::kMax, 0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(Two<float>(Prim::kMin, 0.0f, -0.0f)));
  EXPECT_EQ(Two<float>(Prim::kEq, nan, nan), 0);
  EXPECT_EQ(Two<float>(Prim::kNe, nan, nan), 1);
}

TEST(Convert, FloatToIntegerSaturatesAndNanIsZero) {
  EXPECT_EQ(Convert<int8_t>(300.0f), 127);
  EXPECT_EQ(Convert<int8_t>(-300.0f), -128);
  EXPECT_EQ(Convert<uint8_t>(-1.0f), 0);
  EXPECT_EQ(Convert<int32_t>(std::nanf("")), 0);
  EXPECT_EQ(Convert<int64_t>(1e30f), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Convert<int64_t>(-1e30f), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Convert<uint64_t>(1.8e19), 18000000000000000000u);
  EXPECT_EQ(Convert<int8_t>(-1.9f), -1);
  EXPECT_EQ(Convert<uint8_t>(int32_t{-1}), 255);
  EXPECT_EQ(Convert<Bool>(0.25f).bits, 1);
}

TEST(Convert, NarrowFloatsRoundOnce) {
  // Rounded to f32 first, both would tie, and to even: one ulp off.
  EXPECT_EQ(Convert<F16>(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3c01);
  EXPECT_EQ(Convert<BF16>(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(Convert<BF16>((int64_t{1} << 40) + (int64_t{1} << 32) + 1).bits,
            FloatToBF16(0x1p40f) + 1);
  EXPECT_EQ(Convert<F16>(1e300).bits, 0x7c00);
  EXPECT_EQ(Convert<BF16>(-1e300).bits, 0xff80);
}

// The known answers that come with Random123.
TEST(Random, PhiloxMatchesKnownAnswers) {
  uint32_t lanes[4][1];
  const auto expect = [&](uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    EXPECT_EQ(lanes[0][0], a);
    EXPECT_EQ(lanes[1][0], b);
    EXPECT_EQ(lanes[2][0], c);
    EXPECT_EQ(lanes[3][0], d);
  };
  create::portable::random::Philox({0, 0}, 0, lanes);
  expect(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  create::portable::random::Philox({~uint64_t{0}, ~uint64_t{0}}, ~uint64_t{0}, lanes);
  expect(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  create::portable::random::Philox({0x299f31d0a4093822, 0x0370734413198a2e}, 0x85a308d3243f6a88,
                                   lanes);
  expect(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

}  // namespace
}  // namespace opwire::ops

// What a token weighs, against the exponential in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/ops/sampling/sampler.h"

namespace opwire::ops {
namespace {

TEST(Weight, IsTheExponentialInFixedPoint) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double d =
        -std::ldexp(static_cast<double>(random() >> 11), -53) * (i % 2 == 0 ? 26.0 : 0.75);
    const long double exact = std::ldexp(std::exp(static_cast<long double>(d)), 36);
    const auto got = static_cast<long double>(sampling::weights::WeightOf(d));
    ASSERT_LE(got, exact * (1 + 0x1p-41L)) << d;
    ASSERT_GT(got, exact * (1 - 0x1p-41L) - 1) << d;
  }
  EXPECT_EQ(sampling::weights::WeightOf(-0.0), sampling::weights::kFullWeight);
  EXPECT_EQ(sampling::weights::WeightOf(-INFINITY), 0u);
  EXPECT_EQ(sampling::weights::WeightOf(NAN), 0u);
}

TEST(Weight, ShareIsTheLeastSumThatIsEnough) {
  EXPECT_EQ(sampling::weights::ShareOf(0.5, 10), 5u);
  EXPECT_EQ(sampling::weights::ShareOf(0.51, 10), 6u);
  EXPECT_EQ(sampling::weights::ShareOf(0, 10), 1u);
  EXPECT_EQ(sampling::weights::ShareOf(-3, 10), 1u);
  EXPECT_EQ(sampling::weights::ShareOf(std::nextafter(1.0, 0.0), ~uint64_t{0}),
            ~uint64_t{0} & ~uint64_t{2047});
}

}  // namespace
}  // namespace opwire::ops

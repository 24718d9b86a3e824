// The CPU's fast kernels of losses give zero instead of numbers that are not normal: products of
// such numbers take many times as long.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/conformance/harness.h"

namespace opwire::conformance {
namespace {

// Rows of scores. The first score is the largest; the others decrease until an exponential
// vanishes.
Tensor Scores(DType type, Extents shape, int64_t axis) {
  Tensor t{type, shape, {}};
  const Real lowest = type == DType::kF64 ? 800 : 110;
  const int64_t extent = shape[axis];
  for (int64_t i = 0; i < Count(shape); ++i) {
    const int64_t at = axis == 0 ? i / shape[1] : i % shape[1];
    t.values.push_back(
        Rounded(type, at == 0 ? 0 : -lowest * static_cast<Real>(at) / static_cast<Real>(extent)));
  }
  return t;
}

// Checks `row` with every variant of a vector instruction set.
void Check(const char* row, Case c, size_t result) {
  const OpDef& op = *Catalogue().Find(row);
  const BoundCase b = Bind(op, c).value();
  for (const auto& target : Targets()) {
    if (target->spec != "cpu") continue;
    const Expected expected = ExpectedOf(b, *target->device);
    for (const Variant& v : target->variants.Of(row)) {
      if (!v.unavailable.empty() || !v.name.starts_with("avx")) continue;
      const Outcome out = RunCase(v, b, Layout::kDense, false, *target->device);
      ASSERT_EQ(out.failure, "");
      const Tensor& got = out.results[result];
      const Real least = std::ldexp(Real{1}, got.dtype == DType::kF64 ? -1022 : -126);
      int zeros = 0;
      for (size_t i = 0; i < got.values.size(); ++i) {
        zeros += got.values[i] == 0;
        ASSERT_TRUE(got.values[i] == 0 || std::fabs(got.values[i]) >= least)
            << row << "@" << v.name << " element " << i << ": "
            << static_cast<double>(got.values[i]);
        const Real want = expected.results[result].tensor.values[i];
        ASSERT_LE(std::fabs(got.values[i] - want), expected.results[result].error[i])
            << row << "@" << v.name << " element " << i;
        ASSERT_EQ(got.values[i] == 0, std::fabs(want) < 1.0005L * least)
            << row << "@" << v.name << " element " << i << ": expected "
            << static_cast<double>(want);
      }
      EXPECT_GT(zeros, 0) << row << "@" << v.name;
    }
  }
}

TEST(Subnormals, OfSoftmaxAndGradientsOfLossesAreZero) {
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const int64_t classes : {30, 700}) {  // several rows side by side, and one alone
      for (const int64_t axis : {1, 0}) {
        Case c;
        c.operands = {Scores(type, axis == 1 ? Extents{5, classes} : Extents{classes, 5}, axis)};
        c.attrs = {{"dim", axis}};
        Check("softmax", std::move(c), 0);
      }
      for (const char* row : {"cross_entropy_backward", "cross_entropy_with_gradient"}) {
        for (const Real grad : {1.0L, -0.01L}) {
          Case c;
          c.operands = {{type, {}, {Rounded(type, grad)}},
                        Scores(type, {5, classes}, 1),
                        {DType::kI32, {5}, {0, 1, 2, 0, 0}}};
          c.attrs = {{"reduction", std::string("sum")}};
          Check(row, std::move(c), std::string_view(row).ends_with("gradient") ? 1 : 0);
        }
      }
    }
  }
}

// Numbers that are normal only with a factor beyond 1, as of scaled losses.
TEST(Subnormals, ByLargeFactorsAreNumbers) {
  Case c;
  c.operands = {{DType::kF32, {}, {32768}},
                {DType::kF32, {1, 5}, {0, -88, -90, -95, -INFINITY}},
                {DType::kI32, {1}, {0}}};
  c.attrs = {{"reduction", std::string("sum")}};
  const BoundCase b = Bind(*Catalogue().Find("cross_entropy_backward"), c).value();
  for (const auto& target : Targets()) {
    if (target->spec != "cpu") continue;
    for (const Variant& v : target->variants.Of("cross_entropy_backward")) {
      if (!v.unavailable.empty()) continue;
      const std::vector<Real> got =
          RunCase(v, b, Layout::kDense, false, *target->device).results[0].values;
      for (int i = 1; i < 4; ++i)
        EXPECT_NEAR(static_cast<double>(got[i] / (32768 * std::exp(b.c->operands[1].values[i]))), 1,
                    1e-3)
            << v.name << " class " << i;
      EXPECT_EQ(got[4], 0) << v.name;
    }
  }
}

}  // namespace
}  // namespace opwire::conformance

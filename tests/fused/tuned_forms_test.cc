// Forms of fused GPU kernels that are measured against each other: which there are, that one is kept, and that bits are equal whichever it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/fused/gpu_source.h"
#include "kernels/fused/gpu_tiles.h"
#include "kernels/ops/gpu/fused_forms.h"
#include "kernels/select/choices.h"
#include "tests/fused/device_runs.h"

namespace opwire::fused {
namespace {

// |x| + x.
ScalarProgram AbsAndAdd(DType type) {
  ScalarProgram p;
  const int x = p.AddInput(type);
  const int positive = *p.Append(*Catalogue().Find("abs"), {{x}}, {}, type);
  p.AddOutput(*p.Append(*Catalogue().Find("add"), {{positive, x}}, {}, type));
  return p;
}
TestTensor AlongRows(DType type, std::vector<int64_t> shape) {
  TestTensor t(type, std::move(shape));
  t.strides = {1, t.shape[0]};
  return t;
}

TEST(TunedForms, AreEightAtTheMostAndNoneTwice) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64, DType::kI8}) {
    const ScalarProgram p = AbsAndAdd(type);
    const TestTensor straight(type, {128, 128}), turned = AlongRows(type, {128, 128});
    const auto expect = [&](const auto& rule) {
      const auto others = FormsBeside(rule);
      EXPECT_LE(others.size(), 7u);
      EXPECT_GE(others.size(), 1u);
      std::set<std::string> texts = {GpuSource(p, rule)};
      for (const auto& form : others) texts.insert(GpuSource(p, form));
      EXPECT_EQ(texts.size(), others.size() + 1);
    };
    const opw_tensor a = straight.abi(), b = turned.abi();
    const opw_tensor* const alike[] = {&a, &a};
    const opw_tensor* const otherwise[] = {&b, &a};
    expect(FormOf(p, alike));
    ASSERT_TRUE(TileFormOf(p, otherwise).has_value());
    expect(*TileFormOf(p, otherwise));
  }
}

class TunedFormsTest : public DeviceRunsTest {
 protected:
  // The result of a run with a fuser that keeps what it measures there.
  TestTensor Result(const TestTensor& x, const std::shared_ptr<Choices>& choices) {
    std::vector<TestTensor> in = {x}, out = {TestTensor(x.type, x.shape)};
    RunKernel(BuildFuser(*device_, {.cache = cache_.path(), .choices = choices})->Get(AbsAndAdd(x.type)), in, out, {}, 0);
    return out[0];
  }
  void ExpectOneChoiceOfEqualBits(TestTensor x, int least_ways) {
    std::mt19937_64 random(Seed());
    FillHard(x, random);
    const TestTensor untuned = Result(x, nullptr);
    const auto choices = Choices::Open("", "measured");
    EXPECT_EQ(FirstDifference(Result(x, choices), untuned), "");
    const auto kept = choices->Of("fused ");
    ASSERT_EQ(kept.size(), 1u);
    Result(x, choices);
    EXPECT_EQ(choices->Of("fused ").size(), 1u);
    for (int way = 0; way < least_ways; ++way) {
      const auto other = Choices::Open("", "chosen");
      other->Keep(kept[0].first, {{{std::to_string(way), 1.0}}});
      EXPECT_EQ(FirstDifference(Result(x, other), untuned), "") << "way " << way << ", seed " << Seed();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, TunedFormsTest, ::testing::Values("emu:0"), [](const auto& info) { return std::string(info.param, 3) + info.param[4]; });

TEST_P(TunedFormsTest, OneIsMeasuredAndKept) { ExpectOneChoiceOfEqualBits(TestTensor(DType::kF32, {gpu::kLeastTuned / 8 + 3}), 8); }
TEST_P(TunedFormsTest, OneOfTilesIsMeasuredAndKept) { ExpectOneChoiceOfEqualBits(AlongRows(DType::kF32, {gpu::kLeastTuned / 8 / 1024 + 5, 1024}), 4); }

TEST_P(TunedFormsTest, SmallCallsAreNotMeasured) {
  const auto choices = Choices::Open("", "none");
  Result(TestTensor(DType::kF32, {70, 70}), choices);
  EXPECT_TRUE(choices->Of("").empty());
}

}  // namespace
}  // namespace opwire::fused

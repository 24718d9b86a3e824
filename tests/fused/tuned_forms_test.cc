// Forms of fused GPU kernels that are measured against each other: which there are, that one is
// kept, and that results are equal whichever it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/fused/gpu_columns.h"
#include "kernels/fused/gpu_source.h"
#include "kernels/fused/gpu_tiles.h"
#include "kernels/ops/gpu/fastest_plan.h"
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

// That, and its sum by columns.
ColumnProgram AbsAndAddWithSums(DType type) {
  ColumnProgram p{
      .scalar = AbsAndAdd(type), .results = {std::nullopt, ReduceKind::kSum}, .axes = 1};
  p.scalar.AddOutput(p.scalar.outputs()[0]);
  return p;
}

TEST(TunedForms, OfColumnsAreEightAtTheMostAndNoneTwice) {
  const auto program = GpuColumns::Make(AbsAndAddWithSums(DType::kBF16));
  ASSERT_TRUE(program.ok());
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {16384, 3072}, {1 << 20, 64}, {40, 1 << 20}, {3, 1 << 24}, {1 << 22, 8}, {4097, 5003}}) {
    const TestTensor whole(DType::kBF16, {rows, columns}), sums(DType::kBF16, {columns});
    const opw_tensor a = whole.abi(), b = sums.abi();
    const opw_tensor* const tensors[] = {&a, &a, &b};
    for (const int cluster : {1, 8}) {
      SCOPED_TRACE(testing::Message()
                   << rows << " rows of " << columns << ", clusters of " << cluster);
      const GpuColumnForm rule = program->FormOf(tensors, 132, cluster);
      const std::vector<GpuColumnForm> others = program->FormsBeside(rule, 132, cluster);
      EXPECT_LE(others.size(), 7u);
      std::set<std::vector<int64_t>> seen;
      const auto note = [&](const GpuColumnForm& f) {
        EXPECT_GE(f.blocks, 1);
        EXPECT_LT(f.reduction.chunks, 65536);
        EXPECT_GE(f.reduction.chunk * (f.cluster > 1 ? f.cluster : f.reduction.chunks), rows);
        seen.insert({f.batch, f.cluster, f.blocks, f.reduction.lane_bits, f.reduction.chunk,
                     f.reduction.chunks});
      };
      note(rule);
      for (const GpuColumnForm& f : others) note(f);
      EXPECT_EQ(seen.size(), others.size() + 1);
    }
  }
}

class TunedFormsTest : public DeviceRunsTest {
 protected:
  // The results of a run with a fuser that keeps what it measures there.
  TestTensor Result(const TestTensor& x, const std::shared_ptr<Choices>& choices) {
    std::vector<TestTensor> in = {x}, out = {TestTensor(x.type, x.shape)};
    RunKernel(BuildFuser(*device_, {.cache = KernelCache(cache_), .choices = choices})
                  ->Get(AbsAndAdd(x.type)),
              in, out, {}, 0);
    return out[0];
  }
  std::vector<TestTensor> WithSums(const TestTensor& x, const std::shared_ptr<Choices>& choices) {
    std::vector<TestTensor> in = {x},
                            out = {TestTensor(x.type, x.shape), TestTensor(x.type, {x.shape[1]})};
    RunKernel(BuildFuser(*device_, {.cache = KernelCache(cache_), .choices = choices})
                  ->GetColumns(AbsAndAddWithSums(x.type)),
              in, out, {}, 0);
    return out;
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
      EXPECT_EQ(FirstDifference(Result(x, other), untuned), "")
          << "way " << way << ", seed " << Seed();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, TunedFormsTest, ::testing::Values("emu:0"),
                         [](const auto& info) {
                           return std::string(info.param, 3) + info.param[4];
                         });

TEST_P(TunedFormsTest, OneIsMeasuredAndKept) {
  ExpectOneChoiceOfEqualBits(TestTensor(DType::kF32, {gpu::kLeastTuned / 8 + 3}), 8);
}
TEST_P(TunedFormsTest, OneOfTilesIsMeasuredAndKept) {
  ExpectOneChoiceOfEqualBits(AlongRows(DType::kF32, {gpu::kLeastTuned / 8 / 1024 + 5, 1024}), 4);
}

// Of whole numbers, whose sums are the same in any order.
TEST_P(TunedFormsTest, OneOfColumnsIsMeasuredAndKept) {
  TestTensor x(DType::kF32, {gpu::kLeastTuned / 8 / 1024 + 5, 1024});
  std::mt19937_64 random(Seed());
  for (int64_t i = 0; i < x.elements(); ++i) {
    const float whole = static_cast<float>(random() % 17) - 8;
    std::memcpy(x.bytes.data() + i * 4, &whole, 4);
  }
  const std::vector<TestTensor> untuned = WithSums(x, nullptr);
  const auto choices = Choices::Open("", "measured");
  const auto expect = [&](const std::shared_ptr<Choices>& kept, int way) {
    const std::vector<TestTensor> results = WithSums(x, kept);
    for (size_t o = 0; o < results.size(); ++o)
      EXPECT_EQ(FirstDifference(results[o], untuned[o]), "")
          << "result " << o << ", way " << way << ", seed " << Seed();
  };
  expect(choices, -1);
  const auto kept = choices->Of("columns ");
  ASSERT_EQ(kept.size(), 1u);
  for (int way = 0; way < 4; ++way) {
    const auto other = Choices::Open("", "chosen");
    other->Keep(kept[0].first, {{{std::to_string(way), 1.0}}});
    expect(other, way);
  }
}

TEST_P(TunedFormsTest, SmallCallsAreNotMeasured) {
  const auto choices = Choices::Open("", "none");
  Result(TestTensor(DType::kF32, {70, 70}), choices);
  EXPECT_TRUE(choices->Of("").empty());
}

}  // namespace
}  // namespace opwire::fused

// Programs of columns as GPU kernels, on the emulated devices: their results, in any order of
// threads and at any addresses; and the forms for sizes.
#include "kernels/fused/gpu_columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ir/base/element.h"
#include "kernels/fused/column_kernel.h"
#include "kernels/fused/row_kernel.h"
#include "tests/fused/device_runs.h"
#include "tests/fused/random_columns.h"
#include "tests/fused/row_examples.h"

namespace opwire::fused {
namespace {

class GpuColumnsTest : public DeviceRunsTest {
 protected:
  uint32_t Run(const ColumnProgram& p, std::vector<TestTensor>& in, std::vector<TestTensor>& out,
               std::vector<int> shares = {}, int64_t shift = 0) {
    return RunKernel(fuser_->GetColumns(p), in, out, std::move(shares), shift);
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, GpuColumnsTest, ::testing::Values("emu:0", "emu:1"),
                         [](const auto& info) {
                           return std::string(info.param, 3) + info.param[4];
                         });

// OPWIRE_PROGRAMS: the number of programs of each type.
TEST_P(GpuColumnsTest, RandomProgramsComputeWhatTheySay) {
  const uint64_t programs = ProgramCount(3);
  std::mt19937_64 random(Seed());
  for (const DType type :
       {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kI16, DType::kBool}) {
    for (uint64_t n = 0; n < programs; ++n) {
      const auto& [axes, shape] = kColumnShapes[random() % kColumnShapes.size()];
      const ColumnProgram p = RandomColumns(random, type, axes);
      SCOPED_TRACE(testing::Message() << "program " << n << " of " << DTypeName(type) << " on "
                                      << testing::PrintToString(shape) << ", seed " << Seed());
      RowTensors t = ColumnTensorsFor(p, shape, random);
      if (LacksExtremes(p, shape)) continue;
      for (TestTensor& x : t.operands) FillMild(x, random);
      const int64_t shift = random() % 3 == 0 ? 1 : 0;
      setenv("OPWIRE_EMU_ORDER", n % 2 ? "backward" : "forward", 1);
      Run(p, t.operands, t.results, {}, shift);
      ExpectNear(p, t, shape);
      setenv("OPWIRE_EMU_ORDER", "4711", 1);
      std::vector<TestTensor> again = t.results;
      Run(p, t.operands, again, {}, shift);
      for (size_t o = 0; o < again.size(); ++o)
        ASSERT_EQ(FirstDifference(again[o], t.results[o]), "") << "another order of threads";
    }
  }
}

// Results of narrow floats against the CPU's kernels, which compute in f32 too; with NaNs,
// infinities and zeros.
TEST_P(GpuColumnsTest, NarrowFloatsAreWhatTheyAreOnTheCpu) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const double bound = type == DType::kBF16 ? 0x1p-7 : 0x1p-10;  // an ulp
    ColumnProgram p{.results = {ReduceKind::kMax, ReduceKind::kMin, std::nullopt}};
    const int x = p.scalar.AddInput(type), y = p.scalar.AddInput(type),
              sum = p.scalar.Append(*Catalogue().Find("add"), {{x, y}}, {}, type).value();
    p.scalar.AddOutput(sum), p.scalar.AddOutput(x), p.scalar.AddOutput(sum);
    for (const Shape& shape : {Shape{48, 8}, Shape{77, 3}, Shape{4096, 16}, Shape{3000, 130}}) {
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " on " << testing::PrintToString(shape)
                                      << ", seed " << Seed());
      std::vector<TestTensor> in = {TestTensor(type, shape), TestTensor(type, {shape[1]})};
      for (TestTensor& t : in) FillHard(t, random);
      std::vector<TestTensor> out = {TestTensor(type, {shape[1]}), TestTensor(type, {1, shape[1]}),
                                     TestTensor(type, shape)},
                              expected = out;
      Run(p, in, out);
      Call(ColumnKernel::Make(p).value()->kernel(), in, expected, {}, kAllRanges,
           /*takes_workspace=*/true);
      for (size_t o = 0; o < out.size(); ++o) {
        const int64_t size = DTypeBytes(type);
        for (int64_t i = 0; i < out[o].elements(); ++i) {
          const double a = ElementValue(type, out[o].bytes.data() + i * size),
                       b = ElementValue(type, expected[o].bytes.data() + i * size);
          if (std::isnan(a) && std::isnan(b)) continue;
          ASSERT_TRUE(a == b || std::fabs(a - b) <= bound * std::fabs(b))
              << "result " << o << ", element " << i << ": " << a << " and " << b;
        }
      }
    }
  }
}

TEST_P(GpuColumnsTest, ResultsTakeThePlacesOfOperands) {
  std::mt19937_64 random(Seed());
  ColumnProgram p{.results = {std::nullopt, ReduceKind::kSum}};  // -x, and the sum of x
  const int x = p.scalar.AddInput(DType::kF32);
  p.scalar.AddOutput(p.scalar.Append(*Catalogue().Find("neg"), {{x}}, {}, DType::kF32).value());
  p.scalar.AddOutput(x);
  for (const Shape& shape : {Shape{50, 40}, Shape{7, 1}, Shape{3000, 33}}) {
    std::vector<TestTensor> in = {TestTensor(DType::kF32, shape)},
                            out = {in[0], TestTensor(DType::kF32, {shape[1]})}, same = out;
    FillMild(in[0], random);
    Run(p, in, out);
    for (const char* const order : {"forward", "backward", "17"}) {
      setenv("OPWIRE_EMU_ORDER", order, 1);
      Run(p, in, same, {0, -1});
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_EQ(FirstDifference(same[i], out[i]), "")
            << testing::PrintToString(shape) << ", " << order << ", seed " << Seed();
    }
  }
}

TEST_P(GpuColumnsTest, RaiseFlags) {
  ColumnProgram p{.results = {ReduceKind::kSum}};
  const int x = p.scalar.AddInput(DType::kI32);
  p.scalar.AddOutput(p.scalar.Append(*Catalogue().Find("div"), {{x, x}}, {}, DType::kI32).value());
  std::vector<TestTensor> in = {TestTensor(DType::kI32, {200, 4})},
                          out = {TestTensor(DType::kI32, {4})};
  EXPECT_EQ(Run(p, in, out), static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  for (int i = 0; i < 800; ++i) reinterpret_cast<int32_t*>(in[0].bytes.data())[i] = 1 + i;
  EXPECT_EQ(Run(p, in, out), 0u);
}

// ---- Forms
// -------------------------------------------------------------------------------------------------

GpuColumnForm FormOf(const GpuColumns& columns, DType type, const Shape& shape,
                     int cluster_blocks) {
  std::vector<TestTensor> tensors;
  for (size_t t = 0; t < columns.tensors(); ++t) {
    TestTensor& made = tensors.emplace_back(type, Shape(2));  // without elements: only their
                                                              // addresses matter
    made.shape = shape;
    made.strides = {shape[1], 1};
  }
  std::vector<opw_tensor> abi;
  for (const TestTensor& t : tensors) abi.push_back(t.abi());
  std::vector<const opw_tensor*> pointers;
  for (const opw_tensor& t : abi) pointers.push_back(&t);
  return columns.FormOf(pointers, 132, cluster_blocks);
}

TEST(GpuColumnForms, GoByTheClassOfSizes) {
  const GpuColumns bias = GpuColumns::Make(ColumnExamples(DType::kF32)[0].columns).value();
  const auto form = [&](int64_t rows, int64_t columns, int clusters = 1) {
    return FormOf(bias, DType::kF32, {rows, columns}, clusters);
  };
  EXPECT_EQ(form(4096, 4096).items, 4);
  EXPECT_EQ(form(4096, 4098).items, 2);
  EXPECT_EQ(form(4096, 4097).items, 1);
  EXPECT_GT(form(4096, 4096).reduction.chunks, 1);
  EXPECT_TRUE(form(8, 4'000'000).final()) << "there are enough columns";
  EXPECT_EQ(form(4096, 4096, 8).cluster, 8);
  EXPECT_TRUE(form(4096, 4096, 8).final());
  EXPECT_GT(form(1'000'000, 8, 8).reduction.chunks, 1) << "clusters would be few";
  // Sizes of one class have one text, which differs from those of other classes.
  EXPECT_EQ(bias.Source(form(4096, 4096)), bias.Source(form(5000, 1024)));
  EXPECT_NE(bias.Source(form(4096, 4096)), bias.Source(form(4096, 4097)));
}

}  // namespace
}  // namespace opwire::fused

// Programs of rows against reductions in f64 between whole tensors. They are interpreted and
// compiled, with equal bits. Also shapes, strides and places of operands and results, and rejected
// programs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/base/element.h"
#include "kernels/fused/row_kernel.h"
#include "kernels/fused/row_phases.h"
#include "kernels/fused/row_program.h"
#include "tests/fused/fixture.h"
#include "tests/fused/programs.h"
#include "tests/fused/random_rows.h"

namespace opwire::fused {
namespace {

RowProgram Softmax(DType type) {
  RowProgram p;
  const int x = p.AddInput(type, kAtElements),
            e = Append(p, "exp", {Append(p, "sub", {x, p.Reduce(ReduceKind::kMax, x)}, type)},
                       type);
  p.AddOutput(Append(p, "div", {e, p.Reduce(ReduceKind::kSum, e)}, type), kAtElements);
  return p;
}

TEST(RowPhases, WhatTakesMuchIsKeptAndWhatTakesLittleIsNot) {
  const RowPhases softmax = SplitRows(Softmax(DType::kF32)).value();
  ASSERT_EQ(softmax.steps.size(), 3u) << "the largest; exponentials and their sum; the quotients";
  ASSERT_EQ(softmax.kept.size(), 1u);
  EXPECT_FALSE(softmax.kept[0].to_reduce_only) << "exponentials";
  EXPECT_EQ(softmax.programs.size(), 2u) << "the operand is reduced as it is";
  const RowPhases narrow = SplitRows(Softmax(DType::kBF16)).value();
  ASSERT_EQ(narrow.kept.size(), 2u);
  EXPECT_TRUE(narrow.kept[0].to_reduce_only ^ narrow.kept[1].to_reduce_only)
      << "bf16 is reduced in f32";
  EXPECT_EQ(softmax.values.size(), 2u);

  RowProgram p;  // x - mean(x)
  const int x = p.AddInput(DType::kF32, kAtElements);
  p.AddOutput(Append(p, "sub", {x, p.Reduce(ReduceKind::kMean, x)}, DType::kF32), kAtElements);
  const RowPhases centred = SplitRows(p).value();
  EXPECT_EQ(centred.steps.size(), 2u);
  EXPECT_TRUE(centred.kept.empty());
}

TEST(RowPhases, WhatNobodyAsksForIsNotFolded) {
  RowProgram p;
  const int x = p.AddInput(DType::kF32, kAtElements);
  p.Reduce(ReduceKind::kSum, x);
  p.AddOutput(p.Reduce(ReduceKind::kMax, x), kAtRow);
  const RowPhases phases = SplitRows(p).value();
  EXPECT_EQ(phases.values.size(), 1u);
  EXPECT_EQ(phases.steps.size(), 2u);
}

TEST(RowPhases, SaysWhatIsTooLarge) {
  RowProgram p;
  const int x = p.AddInput(DType::kF32, kAtElements);
  for (int i = 0; i <= kMaxOutputs; ++i) p.AddOutput(x, kAtElements);
  EXPECT_EQ(SplitRows(p).status().code(), absl::StatusCode::kResourceExhausted);
  RowProgram kept;  // 20 values that one phase keeps for the next
  const int y = kept.AddInput(DType::kF32, kAtElements);
  int sum = kept.Reduce(ReduceKind::kSum, y);
  for (int i = 0, v = y; i < 20; ++i)
    v = Append(kept, "tanh", {v}, DType::kF32), sum = Append(kept, "mul", {v, sum}, DType::kF32);
  kept.AddOutput(sum, kAtElements);
  EXPECT_EQ(SplitRows(kept).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RowProgram, EqualProgramsHaveEqualIdentities) {
  EXPECT_EQ(Softmax(DType::kF32).Identity(), Softmax(DType::kF32).Identity());
  EXPECT_NE(Softmax(DType::kF32).Identity(), Softmax(DType::kF64).Identity());
  const auto reduced = [](ReduceKind kind, RowProgram::Place place) {
    RowProgram p;
    p.AddOutput(p.Reduce(kind, p.AddInput(DType::kF32, kAtElements)), place);
    return p.Identity();
  };
  EXPECT_NE(reduced(ReduceKind::kSum, kAtRow), reduced(ReduceKind::kMax, kAtRow));
  EXPECT_NE(reduced(ReduceKind::kSum, kAtRow), reduced(ReduceKind::kSum, kAtShort));
}

// ---- Kernels
// -------------------------------------------------------------------------------------------------

uint32_t CallRows(const opw_kernel& kernel, const std::vector<TestTensor>& inputs,
                  std::vector<TestTensor>& outputs) {
  return Call(kernel, inputs, outputs, {}, kAllRanges, /*takes_workspace=*/true);
}

TEST(RowKernels, RandomProgramsComputeWhatTheySay) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  for (const DType type :
       {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kI16, DType::kBool}) {
    for (uint64_t n = 0; n < ProgramCount(20); ++n) {
      const RowProgram p = RandomRows(random, type);
      const auto kernel = RowKernel::Make(p);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const Shape& shape = kShapes[random() % kShapes.size()];
      SCOPED_TRACE(testing::Message() << "program " << n << " of " << DTypeName(type) << " on "
                                      << testing::PrintToString(shape) << ", seed " << Seed());
      RowTensors t = TensorsFor(p, shape, random);
      for (TestTensor& x : t.operands) FillMild(x, random);
      CallRows((*kernel)->kernel(), t.operands, t.results);
      ExpectNear(p, t, shape);
    }
  }
}

TEST(RowKernels, CompiledAndInterpretedHaveEqualBits) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::mt19937_64 random(Seed());
  Builder builder;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kI16}) {
    const RowProgram p = type == DType::kBF16 ? Softmax(type) : RandomRows(random, type);
    const auto interpreted = RowKernel::Make(p).value(), compiled = RowKernel::Make(p).value();
    compiled->functions().Compile(builder.toolchain(), builder.cache());
    ASSERT_TRUE(compiled->functions().compiled()) << compiled->functions().status();
    for (const Shape& shape : kShapes) {
      RowTensors a = TensorsFor(p, shape, random);
      for (TestTensor& x : a.operands) FillHard(x, random);
      RowTensors b = a;
      EXPECT_EQ(CallRows(interpreted->kernel(), a.operands, a.results),
                CallRows(compiled->kernel(), b.operands, b.results));
      for (size_t o = 0; o < a.results.size(); ++o)
        EXPECT_EQ(FirstDifference(a.results[o], b.results[o]), "")
            << DTypeName(type) << " on " << testing::PrintToString(shape) << ", seed " << Seed();
    }
  }
}

TEST(RowKernels, ResultsTakeThePlacesOfOperands) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  RowProgram p;  // x / sum(x), and n + sum(x) by row
  const int x = p.AddInput(DType::kF32, kAtElements), n = p.AddInput(DType::kF32, kAtShort),
            sum = p.Reduce(ReduceKind::kSum, x);
  p.AddOutput(Append(p, "div", {x, sum}, DType::kF32), kAtElements);
  p.AddOutput(Append(p, "add", {n, sum}, DType::kF32), kAtShort);
  RowProgram q;  // -x and sum(x); neither waits for the other
  const int y = q.AddInput(DType::kF32, kAtElements), z = q.AddInput(DType::kF32, kAtShort);
  q.AddOutput(Append(q, "neg", {y}, DType::kF32), kAtElements);
  q.AddOutput(Append(q, "add", {z, q.Reduce(ReduceKind::kSum, y)}, DType::kF32), kAtShort);
  for (const RowProgram& program : {p, q}) {
    const auto kernel = RowKernel::Make(program).value();
    for (const Shape& shape : {Shape{50, 40}, Shape{20, 3000}, Shape{2, 100'000}}) {
      std::vector<TestTensor> in = {TestTensor(DType::kF32, shape),
                                    TestTensor(DType::kF32, {shape[0]})},
                              out = in;
      for (TestTensor& t : in) {
        for (int64_t i = 0; i < t.elements(); ++i)
          reinterpret_cast<float*>(t.bytes.data())[i] = static_cast<float>(1 + random() % 8);
      }
      CallRows(kernel->kernel(), in, out);
      std::vector<opw_tensor> same;
      for (const TestTensor& t : in) same.push_back(t.abi());
      CallOn(kernel->kernel(), same, same, {}, kAllRanges, /*takes_workspace=*/true);
      for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(in[i].bytes, out[i].bytes);
    }
  }
}

TEST(RowKernels, RaiseFlags) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  RowProgram p;
  const int x = p.AddInput(DType::kI32, kAtElements);
  p.AddOutput(Append(p, "div", {x, p.Reduce(ReduceKind::kMin, x)}, DType::kI32), kAtElements);
  const auto kernel = RowKernel::Make(p).value();
  TestTensor t(DType::kI32, {3, 200});
  std::vector<TestTensor> y = {t};
  EXPECT_EQ(CallRows(kernel->kernel(), {t}, y), static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  for (int i = 0; i < 600; ++i) reinterpret_cast<int32_t*>(t.bytes.data())[i] = 1;
  EXPECT_EQ(CallRows(kernel->kernel(), {t}, y), 0u);
}

}  // namespace
}  // namespace opwire::fused

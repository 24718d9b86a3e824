// Programs of columns against reductions in f64 between whole tensors. They are interpreted and
// compiled, with equal bits. Also places of results, and rejected programs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/fused/column_kernel.h"
#include "kernels/fused/row_kernel.h"
#include "tests/fused/fixture.h"
#include "tests/fused/random_columns.h"

namespace opwire::fused {
namespace {

uint32_t CallColumns(const opw_kernel& kernel, const std::vector<TestTensor>& inputs,
                     std::vector<TestTensor>& outputs) {
  return Call(kernel, inputs, outputs, {}, kAllRanges, /*takes_workspace=*/true);
}

TEST(ColumnProgram, EqualProgramsHaveEqualIdentities) {
  const auto reduced = [](std::optional<ReduceKind> kind, uint32_t axes) {
    ColumnProgram p{.results = {kind}, .axes = axes};
    p.scalar.AddOutput(p.scalar.AddInput(DType::kF32));
    return p.Identity();
  };
  EXPECT_EQ(reduced(ReduceKind::kSum, 1), reduced(ReduceKind::kSum, 1));
  EXPECT_NE(reduced(ReduceKind::kSum, 1), reduced(ReduceKind::kSum, 2));
  EXPECT_NE(reduced(ReduceKind::kSum, 1), reduced(ReduceKind::kMax, 1));
  EXPECT_NE(reduced(ReduceKind::kSum, 1), reduced(std::nullopt, 1));
}

TEST(ColumnKernels, RandomProgramsComputeWhatTheySay) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  for (const DType type : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32,
                           DType::kU8, DType::kI16, DType::kI8, DType::kU32, DType::kBool}) {
    for (const auto& [axes, shape] : kColumnShapes) {
      const ColumnProgram p = RandomColumns(random, type, axes);
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " on " << testing::PrintToString(shape)
                                      << ", axes " << axes << ", seed " << Seed());
      if (LacksExtremes(p, shape)) continue;
      const auto kernel = ColumnKernel::Make(p);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      RowTensors t = ColumnTensorsFor(p, shape, random);
      for (TestTensor& x : t.operands) FillMild(x, random);
      CallColumns((*kernel)->kernel(), t.operands, t.results);
      ExpectNear(p, t, shape);
    }
  }
}

TEST(ColumnKernels, CompiledAndInterpretedHaveEqualBits) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::mt19937_64 random(Seed());
  Builder builder;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kI16}) {
    ColumnProgram p = RandomColumns(random, type, 1);
    const auto interpreted = ColumnKernel::Make(p).value(),
               compiled = ColumnKernel::Make(p).value();
    compiled->functions().Compile(builder.toolchain(), builder.cache());
    ASSERT_TRUE(compiled->functions().compiled()) << compiled->functions().status();
    for (const auto& [axes, shape] : kColumnShapes) {
      if (axes != p.axes || LacksExtremes(p, shape)) continue;
      RowTensors a = ColumnTensorsFor(p, shape, random);
      for (TestTensor& x : a.operands) FillHard(x, random);
      RowTensors b = a;
      EXPECT_EQ(CallColumns(interpreted->kernel(), a.operands, a.results),
                CallColumns(compiled->kernel(), b.operands, b.results));
      for (size_t o = 0; o < a.results.size(); ++o)
        EXPECT_EQ(FirstDifference(a.results[o], b.results[o]), "")
            << DTypeName(type) << " on " << testing::PrintToString(shape) << ", seed " << Seed();
    }
  }
}

TEST(ColumnKernels, SumsOfManyRowsAreAsGoodAsTheOps) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  ColumnProgram p{.results = {ReduceKind::kSum, ReduceKind::kMean}};
  const int x = p.scalar.AddInput(DType::kF32);
  p.scalar.AddOutput(p.scalar.Append(*Catalogue().Find("abs"), {{x}}, {}, DType::kF32).value());
  p.scalar.AddOutput(x);
  const auto kernel = ColumnKernel::Make(p).value();
  TestTensor in(DType::kF32, {3'000'000, 2});
  for (int64_t i = 0; i < in.elements(); ++i) reinterpret_cast<float*>(in.bytes.data())[i] = 0.1f;
  std::vector<TestTensor> out = {TestTensor(DType::kF32, {2}), TestTensor(DType::kF32, {1, 2})};
  CallColumns(kernel->kernel(), {in}, out);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(reinterpret_cast<const float*>(out[0].bytes.data())[i],
                3e5 * (static_cast<double>(0.1f) / 0.1), 0.5);
    EXPECT_NEAR(reinterpret_cast<const float*>(out[1].bytes.data())[i], 0.1, 2e-7);
  }
}

TEST(ColumnKernels, ResultsTakeThePlacesOfOperands) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  ColumnProgram p{.results = {std::nullopt, ReduceKind::kSum}};  // -x, and the sum of x
  const int x = p.scalar.AddInput(DType::kF32);
  p.scalar.AddOutput(p.scalar.Append(*Catalogue().Find("neg"), {{x}}, {}, DType::kF32).value());
  p.scalar.AddOutput(x);
  const auto kernel = ColumnKernel::Make(p).value();
  for (const Shape& shape : {Shape{50, 40}, Shape{200, 3000}, Shape{20'000, 5}}) {
    std::vector<TestTensor> in = {TestTensor(DType::kF32, shape)},
                            out = {in[0], TestTensor(DType::kF32, {shape[1]})};
    FillMild(in[0], random);
    CallColumns(kernel->kernel(), in, out);
    TestTensor sums(DType::kF32, {shape[1]});
    const std::vector<opw_tensor> operands = {in[0].abi()}, results = {in[0].abi(), sums.abi()};
    CallOn(kernel->kernel(), operands, results, {}, kAllRanges, /*takes_workspace=*/true);
    EXPECT_EQ(FirstDifference(in[0], out[0]), "");
    EXPECT_EQ(FirstDifference(sums, out[1]), "");
  }
}

TEST(ColumnKernels, RaiseFlags) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  ColumnProgram p{.results = {ReduceKind::kSum}};
  const int x = p.scalar.AddInput(DType::kI32);
  p.scalar.AddOutput(p.scalar.Append(*Catalogue().Find("div"), {{x, x}}, {}, DType::kI32).value());
  const auto kernel = ColumnKernel::Make(p).value();
  TestTensor t(DType::kI32, {200, 3});
  std::vector<TestTensor> y = {TestTensor(DType::kI32, {3})};
  EXPECT_EQ(CallColumns(kernel->kernel(), {t}, y), static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  for (int i = 0; i < 600; ++i) reinterpret_cast<int32_t*>(t.bytes.data())[i] = 1 + i;
  EXPECT_EQ(CallColumns(kernel->kernel(), {t}, y), 0u);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(reinterpret_cast<const int32_t*>(y[0].bytes.data())[i], 200);
}

TEST(ColumnKernels, ExtremesOfNothingAreRefusedAndSumsAreNot) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  const auto refused = [](ReduceKind kind, const Shape& shape) {
    ColumnProgram p{.results = {kind}};
    p.scalar.AddOutput(p.scalar.AddInput(DType::kF32));
    const auto made = ColumnKernel::Make(p).value();
    const opw_kernel kernel = made->kernel();
    const TestTensor in(DType::kF32, shape), out(DType::kF32, {shape[1]});
    const opw_tensor operand = in.abi(), result = out.abi();
    opw_call call{};
    call.operands = &operand;
    call.results = &result;
    call.context = kernel.context;
    const char* const why = kernel.supports(&call);
    return std::string(why ? why : "");
  };
  EXPECT_EQ(refused(ReduceKind::kMax, {0, 3}), "an extent of 0 has no largest or smallest element");
  EXPECT_EQ(refused(ReduceKind::kMax, {0, 0}), "") << "there are no columns";
  EXPECT_EQ(refused(ReduceKind::kSum, {0, 3}), "");
}

TEST(ColumnKernels, SayWhatTheyCannotReduce) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  ColumnProgram p{.results = {ReduceKind::kAny}};
  p.scalar.AddOutput(p.scalar.AddInput(DType::kF32));
  EXPECT_EQ(ColumnKernel::Make(p).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace opwire::fused

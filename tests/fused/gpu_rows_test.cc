// Programs of rows as GPU kernels, on the emulated devices: their results, in any order of threads;
// addresses, strides and places of operands and results. Also the forms that rows of a size take.
#include "kernels/fused/gpu_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ir/base/element.h"
#include "kernels/fused/row_kernel.h"
#include "tests/fused/device_runs.h"
#include "tests/fused/random_rows.h"
#include "tests/fused/row_examples.h"

namespace opwire::fused {
namespace {

class GpuRowsTest : public DeviceRunsTest {
 protected:
  uint32_t Run(const RowProgram& p, std::vector<TestTensor>& in, std::vector<TestTensor>& out,
               std::vector<int> shares = {}, int64_t shift = 0) {
    return RunKernel(fuser_->GetRows(p), in, out, std::move(shares), shift);
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, GpuRowsTest, ::testing::Values("emu:0", "emu:1"),
                         [](const auto& info) {
                           return std::string(info.param, 3) + info.param[4];
                         });

// OPWIRE_PROGRAMS: the number of programs of each type.
TEST_P(GpuRowsTest, RandomProgramsComputeWhatTheySay) {
  const uint64_t programs = ProgramCount(3);
  std::mt19937_64 random(Seed());
  for (const DType type :
       {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kI16, DType::kBool}) {
    for (uint64_t n = 0; n < programs; ++n) {
      const RowProgram p = RandomRows(random, type);
      const Shape& shape = kShapes[random() % kShapes.size()];
      SCOPED_TRACE(testing::Message() << "program " << n << " of " << DTypeName(type) << " on "
                                      << testing::PrintToString(shape) << ", seed " << Seed());
      RowTensors t = TensorsFor(p, shape, random);
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
TEST_P(GpuRowsTest, NarrowFloatsAreWhatTheyAreOnTheCpu) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    const double bound = type == DType::kBF16     ? 0x1p-7
                         : type == DType::kF16    ? 0x1p-10
                         : type == DType::kF8E4M3 ? 0x1p-3
                                                  : 0x1p-2;  // an ulp
    RowProgram p;  // the larger of x + y and x - max(x), and max(x) by row; 8-bit floats are cast
                   // to f32 and back
    const DType computes = kFloat8s.Has(type) ? DType::kF32 : type;
    const auto cast = [&](int v, DType to) {
      return computes == type ? v : Append(p, "cast", {v}, to);
    };
    const int x = cast(p.AddInput(type, kAtElements), computes),
              y = cast(p.AddInput(type, kAtElements), computes),
              most = p.Reduce(ReduceKind::kMax, x);
    p.AddOutput(
        cast(Append(p, "maximum",
                    {Append(p, "add", {x, y}, computes), Append(p, "sub", {x, most}, computes)},
                    computes),
             type),
        kAtElements);
    p.AddOutput(cast(most, type), kAtShort);
    for (const Shape& shape : {Shape{5, 48}, Shape{3, 77}, Shape{2, 4096}, Shape{2, 70'000}}) {
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " on " << testing::PrintToString(shape)
                                      << ", seed " << Seed());
      std::vector<TestTensor> in = {TestTensor(type, shape), TestTensor(type, {shape[1]})};
      for (TestTensor& t : in) FillHard(t, random);
      std::vector<TestTensor> out = {TestTensor(type, shape), TestTensor(type, {shape[0]})},
                              expected = out;
      Run(p, in, out);
      Call(RowKernel::Make(p).value()->kernel(), in, expected, {}, kAllRanges,
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

TEST_P(GpuRowsTest, ResultsTakeThePlacesOfOperands) {
  std::mt19937_64 random(Seed());
  RowProgram p;  // x / sum(x), and n + sum(x) by row
  const int x = p.AddInput(DType::kF32, kAtElements), n = p.AddInput(DType::kF32, kAtShort),
            sum = p.Reduce(ReduceKind::kSum, x);
  p.AddOutput(Append(p, "div", {x, sum}, DType::kF32), kAtElements);
  p.AddOutput(Append(p, "add", {n, sum}, DType::kF32), kAtShort);
  RowProgram q;  // x and n of the row: a result of both, and one of n, without a reduction
  const int y = q.AddInput(DType::kF32, kAtElements), z = q.AddInput(DType::kF32, kAtRow);
  q.AddOutput(Append(q, "mul", {y, z}, DType::kF32), kAtElements);
  q.AddOutput(Append(q, "neg", {z}, DType::kF32), kAtRow);
  for (const RowProgram& program : {p, q}) {
    for (const Shape& shape :
         {Shape{50, 40}, Shape{7, 1}, Shape{20, 3001}, Shape{2, 100'000}, Shape{1, 200'000}}) {
      const bool is_short = program.result_places()[1] == kAtShort;
      std::vector<TestTensor> in = {TestTensor(DType::kF32, shape),
                                    TestTensor(DType::kF32,
                                               is_short ? Shape{shape[0]} : Shape{shape[0], 1})},
                              out = in, same = in;
      for (TestTensor& t : in) {
        for (int64_t i = 0; i < t.elements(); ++i)
          reinterpret_cast<float*>(t.bytes.data())[i] = static_cast<float>(1 + random() % 8);
      }
      Run(program, in, out);
      for (const char* const order : {"forward", "backward", "17"}) {
        setenv("OPWIRE_EMU_ORDER", order, 1);
        Run(program, in, same, {0, 1});
        for (size_t i = 0; i < in.size(); ++i)
          EXPECT_EQ(FirstDifference(same[i], out[i]), "")
              << testing::PrintToString(shape) << ", " << order << ", seed " << Seed();
      }
    }
  }
}

// One launch per phase. The blocks of a phase store their partial reductions for the next phase.
TEST_P(GpuRowsTest, FewLongRowsAreCut) {
  std::mt19937_64 random(Seed());
  for (const DType type : {DType::kF32, DType::kF64, DType::kI32, DType::kBool}) {
    for (const auto& [shape, shift] : {std::pair{Shape{1, 150'000}, 0},
                                       {Shape{1, 1, 140'001}, 0},
                                       {Shape{2, 140'000}, 0},
                                       {Shape{1, 140'000}, 1}}) {
      const RowProgram p = RandomRows(random, type);
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " on " << testing::PrintToString(shape)
                                      << ", seed " << Seed());
      RowTensors t = TensorsFor(p, shape, random);
      for (TestTensor& x : t.operands) FillMild(x, random);
      setenv("OPWIRE_EMU_ORDER", "forward", 1);
      Run(p, t.operands, t.results, {}, shift);
      ExpectNear(p, t, shape);
      std::vector<TestTensor> again = t.results;
      setenv("OPWIRE_EMU_ORDER", "23", 1);
      Run(p, t.operands, again, {}, shift);
      for (size_t o = 0; o < again.size(); ++o)
        ASSERT_EQ(FirstDifference(again[o], t.results[o]), "") << "another order of threads";
    }
  }
}

TEST_P(GpuRowsTest, RaiseFlags) {
  RowProgram p;
  const int x = p.AddInput(DType::kI32, kAtElements);
  p.AddOutput(Append(p, "div", {p.Reduce(ReduceKind::kMin, x), x}, DType::kI32), kAtElements);
  for (const int64_t length : {20, 200, 30'001}) {
    std::vector<TestTensor> in = {TestTensor(DType::kI32, {3, length})}, out = in;
    EXPECT_EQ(Run(p, in, out), static_cast<uint32_t>(OPW_FLAG_DIVIDE));
    for (int64_t i = 0; i < in[0].elements(); ++i)
      reinterpret_cast<int32_t*>(in[0].bytes.data())[i] = 1 + static_cast<int32_t>(i % 3);
    EXPECT_EQ(Run(p, in, out), 0u);
    // The result takes the operand's place. Many quotients are 0, and the kernel must not divide by
    // them.
    for (const char* const order : {"forward", "backward", "1", "2", "3", "4", "5", "6"}) {
      setenv("OPWIRE_EMU_ORDER", order, 1);
      EXPECT_EQ(Run(p, in, out, {0}), 0u) << order;
    }
    unsetenv("OPWIRE_EMU_ORDER");
  }
}

TEST_P(GpuRowsTest, ExtremesOfNothingAreRefusedAndSumsAreNot) {
  for (const auto& [kind, value] : {std::pair{ReduceKind::kSum, 0.0f},
                                    {ReduceKind::kProd, 1.0f},
                                    {ReduceKind::kMean, std::numeric_limits<float>::quiet_NaN()}}) {
    RowProgram p;
    p.AddOutput(p.Reduce(kind, p.AddInput(DType::kF32, kAtElements)), kAtRow);
    std::vector<TestTensor> in = {TestTensor(DType::kF32, {3, 0})},
                            out = {TestTensor(DType::kF32, {3, 1})};
    Run(p, in, out);
    for (int i = 0; i < 3; ++i) {
      const float got = reinterpret_cast<const float*>(out[0].bytes.data())[i];
      EXPECT_TRUE(got == value || (std::isnan(got) && std::isnan(value))) << got;
    }
  }
  RowProgram p;
  p.AddOutput(p.Reduce(ReduceKind::kMax, p.AddInput(DType::kF32, kAtElements)), kAtRow);
  const std::shared_ptr<const opw_kernel> kernel = fuser_->GetRows(p);
  const TestTensor in(DType::kF32, {3, 0}), none(DType::kF32, {0, 0});
  opw_call call{};
  call.context = kernel->context;
  opw_tensor operand = in.abi();
  call.operands = &operand;
  ASSERT_NE(kernel->supports(&call), nullptr);
  EXPECT_STREQ(kernel->supports(&call), "an extent of 0 has no largest or smallest element");
  operand = none.abi();
  EXPECT_EQ(kernel->supports(&call), nullptr) << "there are no rows";
}

// ---- Forms
// -------------------------------------------------------------------------------------------------

GpuRowForm FormOf(const GpuRows& rows, DType type, const Shape& shape, bool aligned = true) {
  std::vector<TestTensor> tensors;
  for (size_t t = 0; t < rows.tensors(); ++t) {
    TestTensor& made = tensors.emplace_back(
        type, Shape(shape.size()));  // without elements: only their addresses matter
    made.shape = shape;
    for (size_t a = shape.size() - 1; a-- > 0;)
      made.strides[a] = made.strides[a + 1] * shape[a + 1];
  }
  std::vector<opw_tensor> abi;
  for (const TestTensor& t : tensors) abi.push_back(t.abi());
  std::vector<const opw_tensor*> pointers;
  for (const opw_tensor& t : abi) pointers.push_back(&t);
  return rows.FormOf(pointers, 132, aligned);
}

TEST(GpuRowForms, GoByTheClassOfSizes) {
  const GpuRows softmax = GpuRows::Make(RowExamples(DType::kBF16)[0].rows).value();
  const auto form = [&](int64_t length, bool aligned = true) {
    return FormOf(softmax, DType::kBF16, {4096, length}, aligned);
  };
  EXPECT_EQ(form(64).lanes, 8);
  EXPECT_EQ(form(512).lanes, 32);
  EXPECT_EQ(form(64).items, 8);
  EXPECT_EQ(form(4096).lanes, 0);
  EXPECT_TRUE(form(8192).keeps) << "exponentials, in registers";
  EXPECT_FALSE(form(32768).keeps) << "they are computed again";
  EXPECT_FALSE(form(32768).streamed);
  EXPECT_TRUE(form(65536).streamed);
  EXPECT_EQ(form(1001).items, 1);
  EXPECT_EQ(form(1002).items, 2);
  EXPECT_EQ(form(1004).items, 4);
  EXPECT_EQ(form(1024, /*aligned=*/false).items, 1);
  // Sizes of one class have one text, which differs from those of other classes.
  EXPECT_EQ(softmax.Source(form(504)), softmax.Source(form(512)));
  EXPECT_EQ(softmax.Source(FormOf(softmax, DType::kBF16, {7, 512})), softmax.Source(form(512)));
  EXPECT_NE(softmax.Source(form(512)), softmax.Source(form(511)));
  EXPECT_EQ(softmax.Source(form(70'000)), softmax.Source(form(700'000)));
}

TEST(GpuRowForms, FewLongRowsAreCut) {
  const GpuRows softmax = GpuRows::Make(RowExamples(DType::kBF16)[0].rows).value();
  const auto form = [&](int64_t rows, int64_t length, bool aligned = true) {
    return FormOf(softmax, DType::kBF16, {rows, length}, aligned);
  };
  const GpuRowForm one = form(1, 1 << 24);
  EXPECT_TRUE(one.cut);
  EXPECT_GE(one.parts, 132);
  EXPECT_LE(one.parts, one.threads);
  EXPECT_GE(one.parts * one.part_length, one.length);
  EXPECT_LT((one.parts - 1) * one.part_length, one.length);
  EXPECT_EQ(one.part_length % one.items, 0);
  EXPECT_EQ(softmax.Launches(one), 3) << "the largest, the sum of exponentials, the quotients";
  EXPECT_EQ(softmax.Blocks(one, 2), one.parts);
  EXPECT_FALSE(form(1, 1 << 24, /*aligned=*/false).cut) << "which takes no workspace";
  EXPECT_FALSE(form(4096, 1 << 20).cut);
  EXPECT_FALSE(form(1, 4096).cut);
  EXPECT_EQ(softmax.Launches(form(1, 4096)), 1);
  for (int launch = 0; launch < 3; ++launch)
    EXPECT_EQ(softmax.Source(one, launch), softmax.Source(form(3, 1 << 23), launch))
        << "of no sizes";
}

TEST(GpuRowForms, MuchCodeAndManyOperandsTakeFewerElementsAThread) {
  const std::vector<RowExample> examples = RowExamples(DType::kF32);
  const GpuRows softmax = GpuRows::Make(examples[0].rows).value(),
                functions = GpuRows::Make(examples[4].rows).value();
  const GpuRowForm few = FormOf(softmax, DType::kF32, {64, 8192}),
                   many = FormOf(functions, DType::kF32, {64, 8192});
  EXPECT_LT(many.items * many.steps, few.items * few.steps);
}

}  // namespace
}  // namespace opwire::fused

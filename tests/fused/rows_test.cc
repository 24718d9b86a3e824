// Programs of rows: what they compute, against folds in f64 between whole tensors; interpreted and compiled, with equal bits; shapes, strides and
// places of operands and results; and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/base/element.h"
#include "kernels/fused/row_kernel.h"
#include "kernels/fused/row_phases.h"
#include "kernels/fused/row_program.h"
#include "tests/fused/fixture.h"
#include "tests/fused/programs.h"

namespace opwire::fused {
namespace {

using Shape = std::vector<int64_t>;
constexpr auto kElements = RowProgram::kElements;
constexpr auto kRow = RowProgram::kRow;
constexpr auto kShort = RowProgram::kShort;

int Append(RowProgram& p, const char* row, std::vector<int> operands, DType type) { return *p.Append(*Catalogue().Find(row), operands, {}, type); }

RowProgram Softmax(DType type) {
  RowProgram p;
  const int x = p.AddInput(type, kElements), e = Append(p, "exp", {Append(p, "sub", {x, p.Fold(FoldKind::kMax, x)}, type)}, type);
  p.AddOutput(Append(p, "div", {e, p.Fold(FoldKind::kSum, e)}, type), kElements);
  return p;
}

TEST(RowPhases, WhatTakesMuchIsKeptAndWhatTakesLittleIsNot) {
  const RowPhases softmax = SplitRows(Softmax(DType::kF32)).value();
  ASSERT_EQ(softmax.steps.size(), 3u) << "the largest; exponentials and their sum; the quotients";
  ASSERT_EQ(softmax.kept.size(), 1u);
  EXPECT_FALSE(softmax.kept[0].to_fold_only) << "exponentials";
  EXPECT_EQ(softmax.programs.size(), 2u) << "the operand is folded as it is";
  const RowPhases narrow = SplitRows(Softmax(DType::kBF16)).value();
  ASSERT_EQ(narrow.kept.size(), 2u);
  EXPECT_TRUE(narrow.kept[0].to_fold_only ^ narrow.kept[1].to_fold_only) << "bf16 is folded in f32";
  EXPECT_EQ(softmax.values.size(), 2u);

  RowProgram p;  // x - mean(x)
  const int x = p.AddInput(DType::kF32, kElements);
  p.AddOutput(Append(p, "sub", {x, p.Fold(FoldKind::kMean, x)}, DType::kF32), kElements);
  const RowPhases centred = SplitRows(p).value();
  EXPECT_EQ(centred.steps.size(), 2u);
  EXPECT_TRUE(centred.kept.empty());
}

TEST(RowPhases, WhatNobodyAsksForIsNotFolded) {
  RowProgram p;
  const int x = p.AddInput(DType::kF32, kElements);
  p.Fold(FoldKind::kSum, x);
  p.AddOutput(p.Fold(FoldKind::kMax, x), kRow);
  const RowPhases phases = SplitRows(p).value();
  EXPECT_EQ(phases.values.size(), 1u);
  EXPECT_EQ(phases.steps.size(), 2u);
}

TEST(RowPhases, SaysWhatIsTooLarge) {
  RowProgram p;
  const int x = p.AddInput(DType::kF32, kElements);
  for (int i = 0; i <= kMaxOutputs; ++i) p.AddOutput(x, kElements);
  EXPECT_EQ(SplitRows(p).status().code(), absl::StatusCode::kResourceExhausted);
  RowProgram kept;  // 20 values that are kept of one phase for the next
  const int y = kept.AddInput(DType::kF32, kElements);
  int sum = kept.Fold(FoldKind::kSum, y);
  for (int i = 0, v = y; i < 20; ++i) v = Append(kept, "tanh", {v}, DType::kF32), sum = Append(kept, "mul", {v, sum}, DType::kF32);
  kept.AddOutput(sum, kElements);
  EXPECT_EQ(SplitRows(kept).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RowProgram, EqualProgramsHaveEqualIdentities) {
  EXPECT_EQ(Softmax(DType::kF32).Identity(), Softmax(DType::kF32).Identity());
  EXPECT_NE(Softmax(DType::kF32).Identity(), Softmax(DType::kF64).Identity());
  const auto folded = [](FoldKind kind, RowProgram::Place place) {
    RowProgram p;
    p.AddOutput(p.Fold(kind, p.AddInput(DType::kF32, kElements)), place);
    return p.Identity();
  };
  EXPECT_NE(folded(FoldKind::kSum, kRow), folded(FoldKind::kMax, kRow));
  EXPECT_NE(folded(FoldKind::kSum, kRow), folded(FoldKind::kSum, kShort));
}

// ---- Random programs -----------------------------------------------------------------------------------------------------------

RowProgram RandomRows(std::mt19937_64& random, DType type) {
  RowProgram p;
  const auto below = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
  std::vector<int> values = {p.AddInput(type, kElements)}, of_row;
  for (size_t i = below(4); i > 0; --i) {
    const RowProgram::Place places[] = {kElements, kRow, kShort};
    const RowProgram::Place place = places[below(3)];
    values.push_back(p.AddInput(type, place));
    if (place != kElements) of_row.push_back(values.back());
  }
  const auto is_of_row = [&](int v) { return std::ranges::find(of_row, v) != of_row.end(); };
  const auto any = [&] { return values[below(3) ? values.size() - 1 - below(std::min<size_t>(3, values.size())) : below(values.size())]; };
  for (size_t i = 3 + below(12); i > 0; --i) {
    if (below(3) == 0) {
      const FoldKind floats[] = {FoldKind::kMean, FoldKind::kMax, FoldKind::kMin}, wholes[] = {FoldKind::kSum, FoldKind::kProd, FoldKind::kMax, FoldKind::kMin};
      const FoldKind kind = type == DType::kBool ? (below(2) ? FoldKind::kAny : FoldKind::kAll) : kFloats.Has(type) ? floats[below(3)] : wholes[below(4)];
      // Wider products would not be exact in f64.
      if (kind == FoldKind::kProd && DTypeBytes(type) > 2) continue;
      values.push_back(p.Fold(kind, any()));
      of_row.push_back(values.back());
      continue;
    }
    const int a = any(), b = any();
    const char* const unary[] = {"tanh", "abs", "neg"};
    const char* const binary[] = {"add", "sub", "maximum", "minimum"};
    const char* const bools[] = {"bitwise_and", "bitwise_or", "bitwise_xor"};
    const bool one = kFloats.Has(type) && below(3) == 0;
    values.push_back(one ? Append(p, unary[below(3)], {a}, type) : Append(p, type == DType::kBool ? bools[below(3)] : binary[below(4)], {a, b}, type));
    if (is_of_row(a) && (one || is_of_row(b))) of_row.push_back(values.back());
  }
  for (size_t i = 1 + below(3), k = 0; k < i; ++k) {
    const int v = k == 0 ? values.back() : any();
    const RowProgram::Place places[] = {kElements, kRow, kShort};
    p.AddOutput(v, is_of_row(v) ? places[below(3)] : kElements);
  }
  return p;
}

// The shape of a tensor of a place.
Shape ShapeAt(RowProgram::Place place, Shape shape) {
  if (place == kRow) shape.back() = 1;
  if (place == kShort) shape.pop_back();
  return shape;
}

// What a program computes, one tensor operation after the other: f32 and f64 in f64, others exactly.
std::vector<std::vector<double>> Expected(const RowProgram& p, const std::vector<TestTensor>& operands, const Shape& shape) {
  const DType type = p.scalar().inputs()[0];
  const int64_t length = shape.back();
  int64_t rows = 1;
  for (size_t a = 0; a + 1 < shape.size(); ++a) rows *= shape[a];
  const auto elements = static_cast<size_t>(rows * length);
  const auto read = [&](const TestTensor& t, RowProgram::Place place, int64_t i) {
    Shape full = shape;
    int64_t offset = 0;
    for (size_t a = full.size(); a-- > 0; i /= full[a]) {
      const auto rank = static_cast<int64_t>(t.shape.size());
      const int64_t axis = static_cast<int64_t>(a) - (static_cast<int64_t>(full.size()) - (place == kShort ? 1 : 0) - rank);
      if (axis >= 0 && axis < rank && t.shape[static_cast<size_t>(axis)] != 1) offset += i % full[a] * t.strides[static_cast<size_t>(axis)];
    }
    return ElementValue(type, t.bytes.data() + offset * DTypeBytes(type));
  };
  const auto round = [&](double v) {
    const uint64_t bits = kFloats.Has(type) ? ElementBits(type, v) : ElementBits(type, static_cast<int64_t>(v));
    return kFloats.Has(type) ? v : ElementValue(type, &bits);
  };
  std::vector<std::vector<double>> values;
  const std::vector<RowProgram::Level> levels = p.Levels();
  for (size_t i = 0; i < p.scalar().instructions().size(); ++i) {
    const Instruction& one = p.scalar().instructions()[i];
    std::vector<double>& out = values.emplace_back(elements);
    const auto of = [&](int k, size_t e) { return values[static_cast<size_t>(one.operands[k])][e]; };
    if (levels[i].fold >= 0) {
      const RowProgram::Folded& fold = p.folds()[static_cast<size_t>(levels[i].fold)];
      for (int64_t r = 0; r < rows; ++r) {
        const auto first = values[static_cast<size_t>(fold.value)].begin() + r * length;
        double total = 0, lost = 0;  // what additions of floats lose
        double v = fold.kind == FoldKind::kProd || fold.kind == FoldKind::kAll ? 1 : fold.kind == FoldKind::kMax || fold.kind == FoldKind::kMin ? *first : 0;
        for (auto at = first; at < first + length; ++at) {
          switch (fold.kind) {
            case FoldKind::kSum: v = round(v + *at); break;
            case FoldKind::kMean: {
              const double y = *at - lost, next = total + y;
              lost = (next - total) - y;
              total = next;
              break;
            }
            case FoldKind::kProd: v = round(v * *at); break;
            case FoldKind::kMax:
            case FoldKind::kAny: v = std::max(v, *at); break;
            case FoldKind::kMin:
            case FoldKind::kAll: v = std::min(v, *at); break;
          }
        }
        if (fold.kind == FoldKind::kMean) v = total / static_cast<double>(length);
        std::fill_n(out.begin() + r * length, length, v);
      }
      continue;
    }
    for (size_t e = 0; e < elements; ++e) {
      switch (one.prim) {
        case Prim::kIn: {
          const auto k = static_cast<size_t>(levels[i].operand);
          out[e] = read(operands[k], p.operand_places()[k], static_cast<int64_t>(e));
          break;
        }
        case Prim::kNeg: out[e] = -of(0, e); break;
        case Prim::kAdd: out[e] = round(of(0, e) + of(1, e)); break;
        case Prim::kSub: out[e] = round(of(0, e) - of(1, e)); break;
        case Prim::kMax: out[e] = std::max(of(0, e), of(1, e)); break;
        case Prim::kMin: out[e] = std::min(of(0, e), of(1, e)); break;
        case Prim::kAnd: out[e] = of(0, e) != 0 && of(1, e) != 0; break;
        case Prim::kOr: out[e] = of(0, e) != 0 || of(1, e) != 0; break;
        case Prim::kXor: out[e] = (of(0, e) != 0) != (of(1, e) != 0); break;
        case Prim::kAbs: out[e] = std::fabs(of(0, e)); break;
        case Prim::kTanh: out[e] = std::tanh(of(0, e)); break;
        default: ADD_FAILURE() << "no such instruction here: " << InfoOf(one.prim).name;
      }
    }
  }
  std::vector<std::vector<double>> results;
  for (size_t o = 0; o < p.result_places().size(); ++o) {
    const std::vector<double>& all = values[static_cast<size_t>(p.scalar().outputs()[o])];
    std::vector<double>& out = results.emplace_back();
    const size_t step = p.result_places()[o] == kElements ? 1 : static_cast<size_t>(length);
    for (size_t e = 0; e < elements; e += step) out.push_back(all[e]);
  }
  return results;
}

uint32_t CallRows(const opw_kernel& kernel, const std::vector<TestTensor>& inputs, std::vector<TestTensor>& outputs) {
  return Call(kernel, inputs, outputs, {}, kAllRanges, /*takes_workspace=*/true);
}

struct Tensors {
  std::vector<TestTensor> operands, results;
};
// Operands of any strides, of which the first has the rows' shape, and results.
Tensors TensorsFor(const RowProgram& p, const Shape& shape, std::mt19937_64& random) {
  Tensors out;
  const std::vector<DType> types = p.OperandTypes();
  for (size_t i = 0; i < types.size(); ++i) {
    const Shape own = ShapeAt(p.operand_places()[i], shape);
    const uint64_t kind = random() % 3;
    out.operands.push_back(kind == 0 && i > 0 ? Broadcast(types[i], own, random) : kind == 1 ? View(types[i], own, random) : TestTensor(types[i], own));
  }
  for (size_t o = 0; o < p.result_places().size(); ++o) {
    const DType type = p.scalar().OutputType(static_cast<int>(o));
    const Shape own = ShapeAt(p.result_places()[o], shape);
    out.results.push_back(p.result_places()[o] == kElements && random() % 4 == 0 ? View(type, own, random) : TestTensor(type, own));
  }
  return out;
}

// A dense tensor's values, or those of one at any strides in their order.
std::vector<double> InOrder(const TestTensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i) {
    int64_t rest = i, offset = 0;
    for (size_t a = t.shape.size(); a-- > 0; rest /= t.shape[a]) offset += rest % t.shape[a] * t.strides[a];
    out.push_back(ElementValue(t.type, t.bytes.data() + offset * DTypeBytes(t.type)));
  }
  return out;
}

const std::vector<Shape> kShapes = {{3, 10}, {2, 5, 127}, {40, 128}, {7, 1000}, {2, 70'001}, {17, 20'000}, {1, 1}, {300, 3}, {6}, {3, 1, 4, 33}, {2000, 9}};

TEST(RowKernels, RandomProgramsComputeWhatTheySay) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  for (const DType type : {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kI16, DType::kBool}) {
    for (int n = 0; n < 20; ++n) {
      const RowProgram p = RandomRows(random, type);
      const auto kernel = RowKernel::Make(p);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const Shape& shape = kShapes[random() % kShapes.size()];
      SCOPED_TRACE(testing::Message() << "program " << n << " of " << DTypeName(type) << " on " << testing::PrintToString(shape) << ", seed " << Seed());
      Tensors t = TensorsFor(p, shape, random);
      for (TestTensor& x : t.operands) {
        for (size_t at = 0; at < x.bytes.size(); at += static_cast<size_t>(DTypeBytes(type))) {
          const double v = kFloats.Has(type) ? static_cast<double>(static_cast<int64_t>(random() % 4001) - 2000) / 1000 : static_cast<double>(random() % (type == DType::kBool ? 2 : 5));
          const uint64_t bits = ElementBits(type, v);
          std::memcpy(x.bytes.data() + at, &bits, static_cast<size_t>(DTypeBytes(type)));
        }
      }
      CallRows((*kernel)->kernel(), t.operands, t.results);
      const auto expected = Expected(p, t.operands, shape);
      for (size_t o = 0; o < t.results.size(); ++o) {
        const std::vector<double> got = InOrder(t.results[o]);
        ASSERT_EQ(got.size(), expected[o].size());
        for (size_t i = 0; i < got.size(); ++i) {
          const double bound = type == DType::kF32 ? 2e-5 : type == DType::kF64 ? 1e-12 : 0;
          ASSERT_LE(std::fabs(got[i] - expected[o][i]), bound * std::max(1.0, std::fabs(expected[o][i]))) << "result " << o << ", element " << i;
        }
      }
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
      Tensors a = TensorsFor(p, shape, random);
      for (TestTensor& x : a.operands) FillHard(x, random);
      Tensors b = a;
      EXPECT_EQ(CallRows(interpreted->kernel(), a.operands, a.results), CallRows(compiled->kernel(), b.operands, b.results));
      for (size_t o = 0; o < a.results.size(); ++o) EXPECT_EQ(FirstDifference(a.results[o], b.results[o]), "") << DTypeName(type) << " on " << testing::PrintToString(shape) << ", seed " << Seed();
    }
  }
}

TEST(RowKernels, ResultsTakeThePlacesOfOperands) {
  if (!RowKernel::Available()) GTEST_SKIP() << "without AVX2 there are none";
  std::mt19937_64 random(Seed());
  RowProgram p;  // x / sum(x), and how often by row
  const int x = p.AddInput(DType::kF32, kElements), n = p.AddInput(DType::kF32, kShort), sum = p.Fold(FoldKind::kSum, x);
  p.AddOutput(Append(p, "div", {x, sum}, DType::kF32), kElements);
  p.AddOutput(Append(p, "add", {n, sum}, DType::kF32), kShort);
  RowProgram q;  // -x and sum(x), of which neither waits for the other
  const int y = q.AddInput(DType::kF32, kElements), z = q.AddInput(DType::kF32, kShort);
  q.AddOutput(Append(q, "neg", {y}, DType::kF32), kElements);
  q.AddOutput(Append(q, "add", {z, q.Fold(FoldKind::kSum, y)}, DType::kF32), kShort);
  for (const RowProgram& program : {p, q}) {
    const auto kernel = RowKernel::Make(program).value();
    for (const Shape& shape : {Shape{50, 40}, Shape{20, 3000}, Shape{2, 100'000}}) {
      std::vector<TestTensor> in = {TestTensor(DType::kF32, shape), TestTensor(DType::kF32, {shape[0]})}, out = in;
      for (TestTensor& t : in) {
        for (int64_t i = 0; i < t.elements(); ++i) reinterpret_cast<float*>(t.bytes.data())[i] = static_cast<float>(1 + random() % 8);
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
  const int x = p.AddInput(DType::kI32, kElements);
  p.AddOutput(Append(p, "div", {x, p.Fold(FoldKind::kMin, x)}, DType::kI32), kElements);
  const auto kernel = RowKernel::Make(p).value();
  TestTensor t(DType::kI32, {3, 200});
  std::vector<TestTensor> y = {t};
  EXPECT_EQ(CallRows(kernel->kernel(), {t}, y), static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  for (int i = 0; i < 600; ++i) reinterpret_cast<int32_t*>(t.bytes.data())[i] = 1;
  EXPECT_EQ(CallRows(kernel->kernel(), {t}, y), 0u);
}

}  // namespace
}  // namespace opwire::fused

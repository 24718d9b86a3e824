// What random programs of rows are made of, and what they compute.
#include "tests/fused/random_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/element.h"
#include "ir/ops/catalogue.h"

namespace opwire::fused {
namespace {

// The shape of a tensor of a place.
Shape ShapeAt(RowProgram::Place place, Shape shape) {
  if (place == kAtRow) shape.back() = 1;
  if (place == kAtShort) shape.pop_back();
  return shape;
}

}  // namespace

std::vector<std::vector<double>> Expected(const RowProgram& p,
                                          const std::vector<TestTensor>& operands,
                                          const Shape& shape) {
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
      const int64_t axis = static_cast<int64_t>(a) -
                           (static_cast<int64_t>(full.size()) - (place == kAtShort ? 1 : 0) - rank);
      if (axis >= 0 && axis < rank && t.shape[static_cast<size_t>(axis)] != 1)
        offset += i % full[a] * t.strides[static_cast<size_t>(axis)];
    }
    return ElementValue(type, t.bytes.data() + offset * DTypeBytes(type));
  };
  const auto round = [&](double v) {
    const uint64_t bits =
        kFloats.Has(type) ? ElementBits(type, v) : ElementBits(type, static_cast<int64_t>(v));
    return kFloats.Has(type) ? v : ElementValue(type, &bits);
  };
  std::vector<std::vector<double>> values;
  const std::vector<RowProgram::Level> levels = p.Levels();
  for (size_t i = 0; i < p.scalar().instructions().size(); ++i) {
    const Instruction& one = p.scalar().instructions()[i];
    std::vector<double>& out = values.emplace_back(elements);
    const auto of = [&](int k, size_t e) {
      return values[static_cast<size_t>(one.operands[k])][e];
    };
    if (levels[i].reduction >= 0) {
      const RowProgram::Reduction& reduction =
          p.reductions()[static_cast<size_t>(levels[i].reduction)];
      for (int64_t r = 0; r < rows; ++r) {
        const auto first = values[static_cast<size_t>(reduction.value)].begin() + r * length;
        double total = 0, lost = 0;  // what additions of floats lose
        double v = reduction.kind == ReduceKind::kProd || reduction.kind == ReduceKind::kAll ? 1
                   : reduction.kind == ReduceKind::kMax || reduction.kind == ReduceKind::kMin
                       ? *first
                       : 0;
        for (auto at = first; at < first + length; ++at) {
          switch (reduction.kind) {
            case ReduceKind::kSum:
              v = round(v + *at);
              break;
            case ReduceKind::kMean: {
              const double y = *at - lost, next = total + y;
              lost = (next - total) - y;
              total = next;
              break;
            }
            case ReduceKind::kProd:
              v = round(v * *at);
              break;
            case ReduceKind::kMax:
            case ReduceKind::kAny:
              v = std::max(v, *at);
              break;
            case ReduceKind::kMin:
            case ReduceKind::kAll:
              v = std::min(v, *at);
              break;
          }
        }
        if (reduction.kind == ReduceKind::kMean) v = total / static_cast<double>(length);
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
        case Prim::kNeg:
          out[e] = -of(0, e);
          break;
        case Prim::kAdd:
          out[e] = round(of(0, e) + of(1, e));
          break;
        case Prim::kSub:
          out[e] = round(of(0, e) - of(1, e));
          break;
        case Prim::kMax:
          out[e] = std::max(of(0, e), of(1, e));
          break;
        case Prim::kMin:
          out[e] = std::min(of(0, e), of(1, e));
          break;
        case Prim::kAnd:
          out[e] = of(0, e) != 0 && of(1, e) != 0;
          break;
        case Prim::kOr:
          out[e] = of(0, e) != 0 || of(1, e) != 0;
          break;
        case Prim::kXor:
          out[e] = (of(0, e) != 0) != (of(1, e) != 0);
          break;
        case Prim::kAbs:
          out[e] = std::fabs(of(0, e));
          break;
        case Prim::kTanh:
          out[e] = std::tanh(of(0, e));
          break;
        default:
          ADD_FAILURE() << "no such instruction here: " << InfoOf(one.prim).name;
      }
    }
  }
  std::vector<std::vector<double>> results;
  for (size_t o = 0; o < p.result_places().size(); ++o) {
    const std::vector<double>& all = values[static_cast<size_t>(p.scalar().outputs()[o])];
    std::vector<double>& out = results.emplace_back();
    const size_t step = p.result_places()[o] == kAtElements ? 1 : static_cast<size_t>(length);
    for (size_t e = 0; e < elements; e += step) out.push_back(all[e]);
  }
  return results;
}

std::vector<double> InOrder(const TestTensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i) {
    int64_t rest = i, offset = 0;
    for (size_t a = t.shape.size(); a-- > 0; rest /= t.shape[a])
      offset += rest % t.shape[a] * t.strides[a];
    out.push_back(ElementValue(t.type, t.bytes.data() + offset * DTypeBytes(t.type)));
  }
  return out;
}

int Append(RowProgram& p, const char* row, std::vector<int> operands, DType type) {
  return *p.Append(*Catalogue().Find(row), operands, {}, type);
}

RowProgram RandomRows(std::mt19937_64& random, DType type) {
  RowProgram p;
  const auto below = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
  std::vector<int> values = {p.AddInput(type, kAtElements)}, of_row;
  for (size_t i = below(4); i > 0; --i) {
    const RowProgram::Place places[] = {kAtElements, kAtRow, kAtShort};
    const RowProgram::Place place = places[below(3)];
    values.push_back(p.AddInput(type, place));
    if (place != kAtElements) of_row.push_back(values.back());
  }
  const auto is_of_row = [&](int v) { return std::ranges::find(of_row, v) != of_row.end(); };
  const auto any = [&] {
    return values[below(3) ? values.size() - 1 - below(std::min<size_t>(3, values.size()))
                           : below(values.size())];
  };
  for (size_t i = 3 + below(12); i > 0; --i) {
    if (below(3) == 0) {
      const ReduceKind floats[] = {ReduceKind::kMean, ReduceKind::kMax, ReduceKind::kMin},
                       wholes[] = {ReduceKind::kSum, ReduceKind::kProd, ReduceKind::kMax,
                                   ReduceKind::kMin};
      const ReduceKind kind = type == DType::kBool
                                  ? (below(2) ? ReduceKind::kAny : ReduceKind::kAll)
                              : kFloats.Has(type) ? floats[below(3)]
                                                  : wholes[below(4)];
      // Wider products would not be exact in f64.
      if (kind == ReduceKind::kProd && DTypeBytes(type) > 2) continue;
      values.push_back(p.Reduce(kind, any()));
      of_row.push_back(values.back());
      continue;
    }
    const int a = any(), b = any();
    const char* const unary[] = {"tanh", "abs", "neg"};
    const char* const binary[] = {"add", "sub", "maximum", "minimum"};
    const char* const bools[] = {"bitwise_and", "bitwise_or", "bitwise_xor"};
    const bool one = kFloats.Has(type) && below(3) == 0;
    values.push_back(
        one ? Append(p, unary[below(3)], {a}, type)
            : Append(p, type == DType::kBool ? bools[below(3)] : binary[below(4)], {a, b}, type));
    if (is_of_row(a) && (one || is_of_row(b))) of_row.push_back(values.back());
  }
  for (size_t i = 1 + below(3), k = 0; k < i; ++k) {
    const int v = k == 0 ? values.back() : any();
    const RowProgram::Place places[] = {kAtElements, kAtRow, kAtShort};
    p.AddOutput(v, is_of_row(v) ? places[below(3)] : kAtElements);
  }
  return p;
}

RowTensors TensorsFor(const RowProgram& p, const Shape& shape, std::mt19937_64& random) {
  RowTensors out;
  const std::vector<DType> types = p.OperandTypes();
  for (size_t i = 0; i < types.size(); ++i) {
    const Shape own = ShapeAt(p.operand_places()[i], shape);
    const uint64_t kind = random() % 3;
    out.operands.push_back(kind == 0 && i > 0 ? Broadcast(types[i], own, random)
                           : kind == 1        ? View(types[i], own, random)
                                              : TestTensor(types[i], own));
  }
  for (size_t o = 0; o < p.result_places().size(); ++o) {
    const DType type = p.scalar().OutputType(static_cast<int>(o));
    const Shape own = ShapeAt(p.result_places()[o], shape);
    out.results.push_back(p.result_places()[o] == kAtElements && random() % 4 == 0
                              ? View(type, own, random)
                              : TestTensor(type, own));
  }
  return out;
}

void FillMild(TestTensor& t, std::mt19937_64& random) {
  for (size_t at = 0; at < t.bytes.size(); at += static_cast<size_t>(DTypeBytes(t.type))) {
    const double v = kFloats.Has(t.type)
                         ? static_cast<double>(static_cast<int64_t>(random() % 4001) - 2000) / 1000
                         : static_cast<double>(random() % (t.type == DType::kBool ? 2 : 5));
    const uint64_t bits = ElementBits(t.type, v);
    std::memcpy(t.bytes.data() + at, &bits, static_cast<size_t>(DTypeBytes(t.type)));
  }
}

void ExpectNear(const RowProgram& p, const RowTensors& t, const Shape& shape) {
  const auto expected = Expected(p, t.operands, shape);
  for (size_t o = 0; o < t.results.size(); ++o) {
    const std::vector<double> got = InOrder(t.results[o]);
    ASSERT_EQ(got.size(), expected[o].size());
    const DType type = t.results[o].type;
    const double bound = type == DType::kF32 ? 2e-5 : type == DType::kF64 ? 1e-12 : 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - expected[o][i]),
                bound * std::max(1.0, std::fabs(expected[o][i])))
          << "result " << o << ", element " << i;
    }
  }
}

}  // namespace opwire::fused

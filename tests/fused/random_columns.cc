// Creates random programs of columns, and computes their results.
#include "tests/fused/random_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ir/base/element.h"
#include "ir/ops/catalogue.h"

namespace opwire::fused {
namespace {

Shape ColumnsOf(const ColumnProgram& p, const Shape& shape) {
  Shape out;
  for (size_t a = 0; a < shape.size(); ++a) {
    if (!p.ReducesAxis(static_cast<int>(a))) out.push_back(shape[a]);
  }
  return out;
}

// Returns the column of each element of a shape.
std::vector<size_t> ColumnOfEach(const ColumnProgram& p, const Shape& shape) {
  std::vector<size_t> steps(shape.size()), out;
  for (size_t a = shape.size(), below = 1; a-- > 0;) {
    if (!p.ReducesAxis(static_cast<int>(a)))
      steps[a] = std::exchange(below, below * static_cast<size_t>(shape[a]));
  }
  std::vector<int64_t> at(shape.size());
  for (size_t column = 0;;) {
    out.push_back(column);
    size_t a = shape.size();
    while (a-- > 0) {
      column += steps[a];
      if (++at[a] < shape[a]) break;
      column -= steps[a] * static_cast<size_t>(shape[a]);
      at[a] = 0;
    }
    if (a > shape.size()) return out;
  }
}

// Returns each of some values of the program at each element, as a program of rows without
// reductions computes it.
std::vector<std::vector<double>> Elements(const ColumnProgram& p, const std::vector<int>& values,
                                          const std::vector<TestTensor>& operands,
                                          const Shape& shape) {
  RowProgram rows;
  for (const Instruction& one : p.scalar.instructions()) {
    if (one.prim == Prim::kIn)
      rows.AddInput(one.type, kAtElements);
    else
      rows.Append(one);
  }
  for (const int value : values) rows.AddOutput(value, kAtElements);
  return Expected(rows, operands, shape);
}

// Returns the scale of rounding errors of each element of an output whose values cancel: the
// largest magnitude of all its intermediate values.
std::vector<double> Magnitudes(const ColumnProgram& p, int output,
                               const std::vector<TestTensor>& operands, const Shape& shape) {
  std::vector<double> most;
  std::vector<bool> needed(p.scalar.instructions().size());
  needed[static_cast<size_t>(output)] = true;
  for (size_t v = needed.size(); v-- > 0;) {
    if (!needed[v]) continue;
    for (const int operand : p.scalar.instructions()[v].operands) {
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
    }
    const std::vector<double> at = Elements(p, {static_cast<int>(v)}, operands, shape)[0];
    most.resize(at.size());
    for (size_t i = 0; i < at.size(); ++i) most[i] = std::fmax(most[i], std::fabs(at[i]));
  }
  return most;
}

// The result of a column, and the scale of its rounding errors.
struct Total {
  double value, scale;
};
Total Reduce(ReduceKind kind, DType type, const std::vector<double>& column) {
  const auto round = [&](double v) {
    const uint64_t bits = kFloats.Has(type) ? 0 : ElementBits(type, static_cast<int64_t>(v));
    return kFloats.Has(type) ? v : ElementValue(type, &bits);
  };
  Total t{kind == ReduceKind::kProd || kind == ReduceKind::kAll ? 1.0 : 0.0, 1};
  double sum = 0, count = 0;
  long double exact = 0;  // in f64, many equal values are rounded the same way
  for (const double v : column) {
    sum += std::fabs(v);
    exact += v;
    switch (kind) {
      case ReduceKind::kSum:
      case ReduceKind::kMean:
        t.value = round(t.value + v);
        break;
      case ReduceKind::kProd:
        t.value = round(t.value * v);
        break;
      case ReduceKind::kMax:
        t.value = count == 0 || v > t.value ? v : t.value;
        break;
      case ReduceKind::kMin:
        t.value = count == 0 || v < t.value ? v : t.value;
        break;
      case ReduceKind::kAny:
        t.value = std::max(t.value, v);
        break;
      case ReduceKind::kAll:
        t.value = std::min(t.value, v);
        break;
    }
    ++count;
  }
  if (kFloats.Has(type) && (kind == ReduceKind::kSum || kind == ReduceKind::kMean))
    t.value = static_cast<double>(kind == ReduceKind::kMean ? exact / count : exact);
  if (kind == ReduceKind::kSum) t.scale = std::max(1.0, sum);
  if (kind == ReduceKind::kMean) t.scale = std::max(1.0, sum / count);
  return t;
}

}  // namespace

ColumnProgram RandomColumns(std::mt19937_64& random, DType type, uint32_t axes) {
  ColumnProgram p{.axes = axes};
  const auto below = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
  const auto append = [&](const char* row, std::vector<int> operands) {
    return p.scalar.Append(*Catalogue().Find(row), operands, {}, type).value();
  };
  std::vector<int> values = {p.scalar.AddInput(type)};
  for (size_t i = below(4); i > 0; --i) values.push_back(p.scalar.AddInput(type));
  for (size_t i = 1 + below(8); i > 0; --i) {
    const int a = values[below(values.size())], b = values.back();
    const char* const unary[] = {"tanh", "abs", "neg"};
    const char* const binary[] = {"add", "sub", "maximum", "minimum"};
    const char* const bools[] = {"bitwise_and", "bitwise_or", "bitwise_xor"};
    if (kFloats.Has(type) && below(3) == 0)
      values.push_back(append(unary[below(3)], {b}));
    else
      values.push_back(append(type == DType::kBool ? bools[below(3)] : binary[below(4)], {a, b}));
  }
  for (size_t i = 1 + below(4), k = 0; k < i; ++k) {
    p.scalar.AddOutput(k == 0 ? values.back() : values[below(values.size())]);
    const ReduceKind floats[] = {ReduceKind::kSum, ReduceKind::kMean, ReduceKind::kMax,
                                 ReduceKind::kMin},
                     wholes[] = {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin,
                                 ReduceKind::kProd};
    ReduceKind kind = type == DType::kBool ? (below(2) ? ReduceKind::kAny : ReduceKind::kAll)
                      : kFloats.Has(type)  ? floats[below(4)]
                                           : wholes[below(4)];
    if (kind == ReduceKind::kProd && DTypeBytes(type) > 2)
      kind = ReduceKind::kSum;  // wider products would not be exact in f64
    p.results.push_back(k > 0 && below(3) == 0 ? std::nullopt : std::optional(kind));
  }
  return p;
}

RowTensors ColumnTensorsFor(const ColumnProgram& p, const Shape& shape, std::mt19937_64& random) {
  RowTensors out;
  for (size_t i = 0; i < p.scalar.inputs().size(); ++i) {
    const DType type = p.scalar.inputs()[i];
    const uint64_t kind = random() % 3;
    out.operands.push_back(kind == 0 && i > 0 ? Broadcast(type, shape, random)
                           : kind == 1        ? View(type, shape, random)
                                              : TestTensor(type, shape));
  }
  for (size_t o = 0; o < p.results.size(); ++o) {
    const DType type = p.scalar.OutputType(static_cast<int>(o));
    out.results.push_back(p.results[o]        ? TestTensor(type, ColumnsOf(p, shape))
                          : random() % 4 == 0 ? View(type, shape, random)
                                              : TestTensor(type, shape));
  }
  return out;
}

void ExpectNear(const ColumnProgram& p, const RowTensors& t, const Shape& shape) {
  const auto elements = Elements(p, p.scalar.outputs(), t.operands, shape);
  const std::vector<size_t> of_column = ColumnOfEach(p, shape);
  std::vector<std::vector<double>> made(
      t.results.size());  // computed on request, because it takes a while
  // Returns it for element i of result o, or for the elements that reduce to it.
  const auto magnitude = [&](size_t o, size_t i) {
    std::vector<double>& magnitudes = made[o];
    if (magnitudes.empty()) magnitudes = Magnitudes(p, p.scalar.outputs()[o], t.operands, shape);
    const std::optional<ReduceKind> kind = p.results[o];
    if (!kind) return magnitudes[i];
    double sum = 0, most = 0, count = 0;
    for (size_t e = 0; e < magnitudes.size(); ++e) {
      if (of_column[e] != i) continue;
      sum += magnitudes[e];
      most = std::fmax(most, magnitudes[e]);
      ++count;
    }
    return *kind == ReduceKind::kSum ? sum : *kind == ReduceKind::kMean ? sum / count : most;
  };
  for (size_t o = 0; o < t.results.size(); ++o) {
    const std::vector<double> got = InOrder(t.results[o]);
    const DType type = t.results[o].type;
    const double bound = type == DType::kF32    ? 2e-6
                         : type == DType::kF64  ? 1e-13
                         : type == DType::kF16  ? 0x1p-10
                         : type == DType::kBF16 ? 0x1p-7
                                                : 0;
    std::vector<std::vector<double>> columns(p.results[o] ? got.size() : 0);
    for (size_t i = 0; i < elements[o].size() && p.results[o]; ++i)
      columns[of_column[i]].push_back(elements[o][i]);
    for (size_t i = 0; i < got.size(); ++i) {
      const Total expected =
          p.results[o] ? Reduce(*p.results[o], type, columns[i]) : Total{elements[o][i], 1};
      if (std::isnan(expected.value) && std::isnan(got[i])) continue;
      if (type == DType::kF16 && std::fabs(expected.value) >= 65504 && std::isinf(got[i]))
        continue;  // beyond its range
      const double off = std::fabs(got[i] - expected.value);
      if (off <= bound * std::max(expected.scale, std::fabs(expected.value))) continue;
      ASSERT_LE(off, bound * magnitude(o, i))
          << "result " << o << ", element " << i << ": " << got[i] << " and " << expected.value;
    }
  }
}

bool LacksExtremes(const ColumnProgram& p, const Shape& shape) {
  const auto extremes = [](const auto& reduction) {
    return reduction == ReduceKind::kMax || reduction == ReduceKind::kMin;
  };
  int64_t rows = 1, columns = 1;
  for (size_t a = 0; a < shape.size(); ++a)
    (p.ReducesAxis(static_cast<int>(a)) ? rows : columns) *= shape[a];
  return rows == 0 && columns > 0 && std::ranges::any_of(p.results, extremes);
}

}  // namespace opwire::fused

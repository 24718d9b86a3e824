// quantize and dequantize, in the arithmetic of the computing type itself, as each of its
// operations is rounded once.
#include <algorithm>
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// Elements of a group; its parameters are `each` numbers.
struct Sizes {
  size_t each, groups, extent;
};
Sizes SizesOf(const Tensor& params, size_t floats) {
  const auto each = static_cast<size_t>(params.shape.back()),
             groups = static_cast<size_t>(Count(params.shape)) / each;
  return {each, groups, groups == 0 ? 0 : floats / groups};
}

template <typename C>
void Quantize(const OracleCall& c, Expected* e) {
  const Tensor& x = c.In(0);
  const bool symmetric = c.Bool(2);
  const int bits = static_cast<int>(c.Int(1));
  const C top = static_cast<C>(std::ldexp(1, bits - 1));
  Tensor &values = e->results[0].tensor, &params = e->results[1].tensor;
  const Sizes s = SizesOf(params, x.values.size());
  for (size_t g = 0; g < s.groups; ++g) {
    C least = 0, most = 0, magnitude = 0;
    bool nan = false;
    for (size_t i = 0; i < s.extent; ++i) {
      const C v = static_cast<C>(x.values[g * s.extent + i]);
      nan |= std::isnan(v);
      least = i == 0 ? v : std::min(least, v);
      most = i == 0 ? v : std::max(most, v);
      magnitude = std::max(magnitude, std::fabs(v));
    }
    C half = symmetric ? magnitude : most / 2 - least / 2,
      offset = symmetric ? 0 : most / 2 + least / 2;
    if (offset == 0) offset = 0;
    if (nan) half = offset = NAN;
    C factor = top / half;
    if (std::isinf(factor)) factor = 1;
    if (symmetric) offset = 0;
    params.values[g * s.each] = 1 / factor;
    if (!symmetric) params.values[g * s.each + 1] = offset;
    for (size_t i = 0; i < s.extent; ++i) {
      const C v = (static_cast<C>(x.values[g * s.extent + i]) - offset) * factor;
      const Real whole =
          std::isnan(v) ? 0 : std::clamp<Real>(std::nearbyint(static_cast<Real>(v)), -top, top - 1);
      const size_t at = g * s.extent + i;
      if (bits == 8)
        values.values[at] = whole;
      else
        values.values[at / 2] += (whole < 0 ? whole + 16 : whole) * (at % 2 == 0 ? 1 : 16);
    }
  }
}

template <typename C>
void Dequantize(const OracleCall& c, Expected* e) {
  const Tensor &values = c.In(0), &params = c.In(1);
  Tensor& y = e->result();
  const Sizes s = SizesOf(params, y.values.size());
  for (size_t i = 0; i < y.values.size(); ++i) {
    const size_t g = i / s.extent;
    int value = static_cast<int>(values.values[c.Int(0) == 8 ? i : i / 2]);
    if (c.Int(0) == 4) value = i % 2 == 0 ? value % 16 : value / 16;
    if (c.Int(0) == 4 && value >= 8) value -= 16;
    const C product = static_cast<C>(value) * static_cast<C>(params.values[g * s.each]);
    y.values[i] = static_cast<Real>(
        s.each == 2 ? product + static_cast<C>(params.values[g * s.each + 1]) : product);
  }
}

}  // namespace

bool ComputeQuant(const OracleCall& c, Expected* e) {
  if (c.row->name == "quantize")
    c.In(0).dtype == DType::kF64 ? Quantize<double>(c, e) : Quantize<float>(c, e);
  else if (c.row->name == "dequantize")
    c.In(1).dtype == DType::kF64 ? Dequantize<double>(c, e) : Dequantize<float>(c, e);
  else
    return false;
  return true;
}

}  // namespace opwire::conformance

// Rotary embedding.
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {

bool ComputeRotary(const OracleCall& c, Expected* e) {
  if (c.row->name != "rotary_embedding") return false;
  const Tensor &x = c.In(0), &positions = c.In(1);
  if (x.elements() == 0) return true;
  const int64_t depth = x.shape.back(), dim = c.Int(0) != 0 ? c.Int(0) : depth;
  const Real eps = Eps(ComputingType(x.dtype)), theta = c.Float(1), scale = c.Float(3);
  e->result().values = x.values;
  e->error().assign(x.elements(), 0);
  const Extents rows(x.shape.begin(), x.shape.end() - 1);
  Extents index(rows.size(), 0);
  for (int64_t row = 0; row < Count(rows); ++row, NextIndex(rows, &index)) {
    const Real position = positions.dtype == DType::kInvalid
                              ? static_cast<Real>(index.back())
                              : positions.values[BroadcastFlat(positions.shape, index)];
    for (int64_t i = 0; i < dim / 2; ++i) {
      const int64_t first = row * depth + (c.Bool(2) ? 2 * i : i),
                    second = c.Bool(2) ? first + 1 : first + dim / 2;
      const Real angle =
          position * scale * std::pow(theta, -2 * static_cast<Real>(i) / static_cast<Real>(dim));
      const Real sine = c.Bool(4) ? -std::sin(angle) : std::sin(angle), cosine = std::cos(angle),
                 a = x.values[first], b = x.values[second];
      const Real off =
          std::fmin((x.dtype == DType::kF64 ? 4 : 2) * eps * std::fabs(angle), 2) + 6 * eps;
      const auto put = [&](int64_t at, Real v) {
        e->result().values[at] = v;
        e->error()[at] = off * (std::fabs(a) + std::fabs(b)) + Ulp(x.dtype, v) / 2;
      };
      put(first, a * cosine - b * sine);
      put(second, b * cosine + a * sine);
    }
  }
  return true;
}

}  // namespace opwire::conformance

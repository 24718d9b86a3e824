// Reductions, reductions that return an index, and running sums.
#include <cmath>
#include <numeric>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// Returns the elements of x that each result reduces, in row-major order.
std::vector<std::vector<Real>> Groups(const Tensor& x, const std::vector<bool>& reduced) {
  Extents kept;
  for (int a = 0; a < x.rank(); ++a) kept.push_back(reduced[a] ? 1 : x.shape[a]);
  std::vector<std::vector<Real>> groups(Count(kept));
  Extents index(x.shape.size(), 0);
  for (int64_t i = 0; i < x.elements(); ++i, NextIndex(x.shape, &index))
    groups[BroadcastFlat(kept, index)].push_back(x.values[i]);
  return groups;
}

Real SumError(const std::vector<Real>& terms, DType computing) {
  Real magnitude = 0;
  for (Real t : terms) magnitude += std::fabs(t);
  return (8 + static_cast<Real>(terms.size()) / 32) * Eps(computing) * magnitude;
}

Real WrappedProduct(DType t, const std::vector<Real>& terms) {
  unsigned __int128 product = 1;
  for (Real v : terms) product *= static_cast<unsigned __int128>(static_cast<__int128>(v));
  const uint64_t bits = static_cast<uint64_t>(product);
  return Decode(t, &bits);  // the low bytes
}

// A NaN precedes everything; among equals the first one counts.
size_t ExtremeAt(const std::vector<Real>& v, bool largest) {
  size_t best = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(v[i])) return i;
    if (largest ? v[i] > v[best] : v[i] < v[best]) best = i;
  }
  return best;
}

void Cumsum(const OracleCall& c, Expected* e) {
  const Tensor& x = c.In(0);
  const int dim = Axis(c.Int(0), x.rank());
  const bool floats = IsFloat(x.dtype);
  const DType computing = ComputingType(x.dtype);
  if (floats) e->error().resize(x.elements());
  Extents index(x.shape.size(), 0);
  std::vector<Real> magnitude(x.elements(), 0);
  for (int64_t i = 0; i < x.elements(); ++i, NextIndex(x.shape, &index)) {
    Real sum = x.values[i];
    magnitude[i] = std::fabs(sum);
    if (index[dim] > 0) {
      Extents before = index;
      --before[dim];
      const int64_t at = Flat(x.shape, before);
      sum += e->result().values[at];
      magnitude[i] += magnitude[at];
    }
    e->result().values[i] = floats ? sum : CastValue(DType::kI64, x.dtype, sum, false);
    if (floats)
      e->error()[i] = (8 + static_cast<Real>(index[dim])) * Eps(computing) * magnitude[i] +
                      Ulp(x.dtype, sum) / 2;
  }
}

}  // namespace

bool ComputeReduce(const OracleCall& c, Expected* e) {
  if (c.row->family != "reduce") return false;
  const std::string& op = c.row->name;
  if (op == "cumsum") {
    Cumsum(c, e);
    return true;
  }
  const Tensor& x = c.In(0);
  const bool arg = op == "argmax" || op == "argmin";
  std::vector<bool> reduced(x.rank(), !arg && c.IntList(0).empty());
  if (arg)
    reduced[Axis(c.Int(0), x.rank())] = true;
  else
    for (int64_t a : c.IntList(0)) reduced[Axis(a, x.rank())] = true;
  const bool floats = IsFloat(x.dtype), sums = op == "sum" || op == "mean" || op == "prod";
  const DType computing = ComputingType(x.dtype);
  const auto groups = Groups(x, reduced);
  if (floats && sums) e->error().resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<Real>& v = groups[g];
    const Real n = static_cast<Real>(v.size());
    Real& y = e->result().values[g];
    if (op == "sum" || op == "mean") {
      if (floats) {
        y = std::accumulate(v.begin(), v.end(), Real{0}) / (op == "mean" ? n : 1);
        e->error()[g] = SumError(v, computing) / (op == "mean" ? std::fmax(n, Real{1}) : 1);
      } else {
        for (Real t : v) y = CastValue(DType::kI64, x.dtype, y + t, false);
      }
    } else if (op == "prod") {
      y = 1;
      for (Real t : v) y *= t;
      if (!floats)
        y = WrappedProduct(x.dtype, v);
      else
        e->error()[g] = (n + 1) * Ulp(computing, y);
    } else if (op == "any" || op == "all") {
      y = op == "all";
      for (Real t : v) y = op == "any" ? y != 0 || t != 0 : y != 0 && t != 0;
    } else {
      const size_t at = ExtremeAt(v, op == "argmax" || op == "amax");
      y = arg ? static_cast<Real>(at) : v[at];
    }
    if (floats && sums) e->error()[g] += Ulp(x.dtype, y) / 2;
  }
  return true;
}

}  // namespace opwire::conformance

// What the oracle's families share.
#include "tests/conformance/oracle.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace opwire::conformance {

Real Eps(DType computing) { return Ulp(computing, 1); }

int64_t Flat(const Extents& shape, const Extents& index) {
  int64_t flat = 0;
  for (size_t a = 0; a < shape.size(); ++a) flat = flat * shape[a] + index[a];
  return flat;
}

bool NextIndex(const Extents& shape, Extents* index) {
  for (size_t a = shape.size(); a-- > 0;) {
    if (++(*index)[a] < shape[a]) return true;
    (*index)[a] = 0;
  }
  return false;
}

int64_t BroadcastFlat(const Extents& operand, const Extents& index) {
  int64_t flat = 0;
  const size_t shift = index.size() - operand.size();
  for (size_t a = 0; a < operand.size(); ++a)
    flat = flat * operand[a] + (operand[a] == 1 ? 0 : index[a + shift]);
  return flat;
}

Real CastValue(DType from, DType to, Real v, bool saturate) {
  if (to == DType::kBool) return v != 0;
  if (IsFloat(to)) {
    if (saturate && kFloat8s.Has(to) && std::fabs(v) > Largest(to))
      return std::copysign(Largest(to), v);
    return Rounded(to, v);
  }
  if (IsFloat(from)) {
    const Real span = std::ldexp(Real{1}, BitsOf(to));
    const Real low = IsSigned(to) ? -span / 2 : 0, high = IsSigned(to) ? span / 2 - 1 : span - 1;
    return std::isnan(v) ? 0 : std::trunc(std::fmin(std::fmax(v, low), high));
  }
  const uint64_t bits = static_cast<uint64_t>(static_cast<__int128>(v));
  return Decode(to, &bits);  // the low bytes
}

Expected Compute(const OracleCall& call, std::vector<Tensor> results) {
  Expected e;
  for (Tensor& result : results) {
    result.values.assign(Count(result.shape), 0);
    e.results.push_back({std::move(result), {}});
  }
  if (ComputeElementwise(call, &e) || ComputeShape(call, &e) || ComputeReduce(call, &e) ||
      ComputeSort(call, &e) || ComputeNn(call, &e) || ComputeGradients(call, &e) ||
      ComputeConvolution(call, &e) || ComputeAttention(call, &e) || ComputeRotary(call, &e) ||
      ComputeCreate(call, &e) || ComputeOptim(call, &e) || ComputeQuant(call, &e) ||
      ComputeBlocks(call, &e) || ComputeSampling(call, &e)) {
    return e;
  }
  std::fprintf(stderr, "the oracle lacks %s\n", call.row->name.c_str());
  std::abort();
}

}  // namespace opwire::conformance

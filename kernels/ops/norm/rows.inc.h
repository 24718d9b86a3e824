// Normalisation of a row in the computing type, by two passes and one to store. The includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/norm/fast.h"
#include "kernels/ops/simd/fold.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <typename S, bool kLayer>
void Norm(void* to, const void* from, const void* weight, const void* bias, int64_t n, double eps) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  const S* const w = static_cast<const S*>(weight);
  const S* const b = static_cast<const S*>(bias);
  const E count = static_cast<E>(n);
  const E mean = kLayer ? FoldWith(x, n, E{0}, Same(), Plus()) / count : E{0};
  const E square = FoldWith(
                       x, n, E{0}, [mean](Vec<E> v) { return (v - mean) * (v - mean); }, Plus()) /
                   count;
  const E factor = E{1} / Sqrt(Splat(static_cast<E>(square + static_cast<E>(eps))))[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec<E> v = (Mem<S>::Load(x + i) - mean) * factor;
    if (w != nullptr) v = v * Mem<S>::Load(w + i);
    if (b != nullptr) v = v + Mem<S>::Load(b + i);
    Mem<S>::Store(y + i, v);
  }
  if (i < n) {
    Vec<E> v = (Mem<S>::LoadN(x + i, n - i) - mean) * factor;
    if (w != nullptr) v = v * Mem<S>::LoadN(w + i, n - i);
    if (b != nullptr) v = v + Mem<S>::LoadN(b + i, n - i);
    Mem<S>::StoreN(y + i, v, n - i);
  }
}

template <typename S>
constexpr void Set(NormRows* r, int type) {
  r->layer[type] = Norm<S, true>;
  r->rms[type] = Norm<S, false>;
}
constexpr NormRows Rows() {
  NormRows r{};
  Set<double>(&r, OPW_F64);
  Set<float>(&r, OPW_F32);
  Set<Half>(&r, OPW_F16);
  Set<Brain>(&r, OPW_BF16);
  return r;
}
constexpr NormRows kNormRows = Rows();

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

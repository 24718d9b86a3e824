// Softmax of a row, in the computing type. The includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/simd/fold.h"
#include "kernels/ops/softmax/fast.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <typename E>
inline E LogOne(E v) {
  return Log(Splat(v))[0];
}

// The largest element; a NaN makes everything NaN later, by its exponential.
template <typename S>
inline typename Mem<S>::Compute Most(const S* x, int64_t n) {
  using E = typename Mem<S>::Compute;
  return FoldWith(x, n, static_cast<E>(-__builtin_inf()), Same(), Larger());
}
template <typename S>
inline typename Mem<S>::Compute SumExp(const S* x, int64_t n, typename Mem<S>::Compute most) {
  using E = typename Mem<S>::Compute;
  return FoldWith(
      x, n, E{0}, [most](Vec<E> v) { return Exp(v - most); }, Plus());
}

template <typename S>
void Softmax(void* to, const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n), factor = E{1} / SumExp(x, n, most);
  Map(y, x, n, [=](Vec<E> v) { return Exp(v - most) * factor; });
}

template <typename S>
void LogSoftmax(void* to, const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n), log_sum = LogOne(SumExp(x, n, most));
  Map(static_cast<S*>(to), x, n, [=](Vec<E> v) { return (v - most) - log_sum; });
}

template <typename S>
double LogSumExp(const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n);
  return static_cast<double>(most) + static_cast<double>(LogOne(SumExp(x, n, most)));
}

template <typename S>
void ExpScaled(void* to, const void* from, int64_t n, double log_sum, double scale) {
  using E = typename Mem<S>::Compute;
  const E shift = static_cast<E>(log_sum), factor = static_cast<E>(scale);
  Map(static_cast<S*>(to), static_cast<const S*>(from), n, [=](Vec<E> v) { return Exp(v - shift) * factor; });
}

template <typename S>
constexpr void Set(SoftmaxRows* r, int type) {
  r->softmax[type] = Softmax<S>;
  r->log_softmax[type] = LogSoftmax<S>;
  r->log_sum_exp[type] = LogSumExp<S>;
  r->exp[type] = ExpScaled<S>;
}

constexpr SoftmaxRows Rows() {
  SoftmaxRows r{};
  Set<double>(&r, OPW_F64);
  Set<float>(&r, OPW_F32);
  Set<Half>(&r, OPW_F16);
  Set<Brain>(&r, OPW_BF16);
  return r;
}
constexpr SoftmaxRows kSoftmaxRows = Rows();

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

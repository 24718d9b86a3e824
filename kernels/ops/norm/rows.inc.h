// Normalisation of a row and its gradient in the computing type, by two passes over x, more for the
// gradient, and one to store. The includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/norm/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::norm::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

constexpr int64_t kManyElements = 4096;

// Of a row: the mean, 0 where it is not taken away, and 1 over the square root of the mean square
// distance from it plus eps.
template <typename E>
struct Statistics {
  E mean, factor;
};
template <bool kLayer, typename S>
inline Statistics<typename Mem<S>::Compute> StatisticsOf(const S* x, int64_t n, double eps) {
  using E = typename Mem<S>::Compute;
  const E count = static_cast<E>(n);
  E mean = kLayer ? ReduceWith(x, n, E{0}, Same(), Plus()) / count : E{0};
  // Corrects the rounding error of the sum of many elements.
  if (kLayer && n > kManyElements) {
    const E about = mean;
    mean += ReduceWith(
                x, n, E{0}, [about](Vec<E> v) { return v - about; }, Plus()) /
            count;
  }
  const E square = ReduceWith(
                       x, n, E{0}, [mean](Vec<E> v) { return (v - mean) * (v - mean); }, Plus()) /
                   count;
  return {mean, E{1} / Sqrt(Splat(static_cast<E>(square + static_cast<E>(eps))))[0]};
}

template <typename S, bool kLayer>
void Norm(void* to, const void* from, const void* weight, const void* bias, int64_t n, double eps) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  const S* const w = static_cast<const S*>(weight);
  const S* const b = static_cast<const S*>(bias);
  const Statistics<E> s = StatisticsOf<kLayer>(x, n, eps);
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    Vec<E> v = (lanes.Load(x + i) - s.mean) * s.factor;
    if (w != nullptr) v = v * lanes.Load(w + i);
    if (b != nullptr) v = v + lanes.Load(b + i);
    lanes.Store(y + i, v);
  });
}

template <typename S>
void AddUp(void* to, const void* from, const void* other, int64_t n) {
  S* const sum = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  const S* const residual = static_cast<const S*>(other);
  ForVectors<typename Mem<S>::Compute>(n, [&](int64_t i, auto lanes) {
    lanes.Store(sum + i, lanes.Load(x + i) + lanes.Load(residual + i));
  });
}

template <typename S, bool kLayer>
void NormBackward(void* to, void* weight_sums, void* bias_sums, const void* grad, const void* from,
                  const void* weight, const void* residual, int64_t n, double eps) {
  using E = typename Mem<S>::Compute;
  S* const grad_x = static_cast<S*>(to);
  E* const by_weight = static_cast<E*>(weight_sums);
  E* const by_bias = static_cast<E*>(bias_sums);
  const S* const dy = static_cast<const S*>(grad);
  const S* const x = static_cast<const S*>(from);
  const S* const w = static_cast<const S*>(weight);
  const S* const beside = static_cast<const S*>(residual);
  const Statistics<E> s = StatisticsOf<kLayer>(x, n, eps);
  const auto slope = [&](int64_t i, auto lanes) {  // by the normalised element
    const Vec<E> g = lanes.Load(dy + i);
    return w != nullptr ? g * lanes.Load(w + i) : g;
  };
  const E count = static_cast<E>(n),
          mean_slope = kLayer ? ReduceVectors(n, E{0}, slope, Plus()) / count : E{0};
  const E product = ReduceVectors(
                        n, E{0},
                        [&](int64_t i, auto lanes) {
                          return slope(i, lanes) * ((lanes.Load(x + i) - s.mean) * s.factor);
                        },
                        Plus()) /
                    count;
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    const Vec<E> normal = (lanes.Load(x + i) - s.mean) * s.factor, g = lanes.Load(dy + i);
    lanes.Store(by_weight + i, lanes.Load(by_weight + i) + g * normal);
    if constexpr (kLayer) lanes.Store(by_bias + i, lanes.Load(by_bias + i) + g);
    const Vec<E> out = (slope(i, lanes) - mean_slope - normal * product) * s.factor;
    lanes.Store(grad_x + i, beside != nullptr ? out + lanes.Load(beside + i) : out);
  });
}

template <typename S>
void ReduceSums(void* to, const void* sums, int64_t parts, int64_t stride, int64_t n) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const E* const x = static_cast<const E*>(sums);
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    Vec<E> sum = lanes.Load(x + i);
    for (int64_t p = 1; p < parts; ++p) sum = sum + lanes.Load(x + p * stride + i);
    lanes.Store(y + i, sum);
  });
}

template <typename S>
constexpr void Set(NormRows* r, int type) {
  r->layer[type] = Norm<S, true>;
  r->rms[type] = Norm<S, false>;
  r->sum[type] = AddUp<S>;
  r->layer_backward[type] = NormBackward<S, true>;
  r->rms_backward[type] = NormBackward<S, false>;
  r->reduction[type] = ReduceSums<S>;
}
constexpr NormRows Rows() {
  NormRows r{};
  Set<double>(&r, OPW_F64);
  Set<float>(&r, OPW_F32);
  Set<Half>(&r, OPW_F16);
  Set<BFloat16>(&r, OPW_BF16);
  return r;
}
constexpr NormRows kNormRows = Rows();

}  // namespace
}  // namespace opwire::ops::norm::OPWIRE_ISA

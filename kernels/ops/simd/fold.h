// Folding contiguous elements with several vectors at once: the order depends on the count alone.
#ifndef OPWIRE_KERNELS_OPS_SIMD_FOLD_H_
#define OPWIRE_KERNELS_OPS_SIMD_FOLD_H_

#include "kernels/ops/simd/math.h"

namespace opwire::ops::OPWIRE_ISA {

// The lanes below n as a mask.
template <typename E>
inline Mask<E> LanesBelow(int64_t n) {
  using I = typename SignedOf<sizeof(E)>::Type;
  Mask<E> lane;
  for (int i = 0; i < Mem<E>::kLanes; ++i) lane[i] = static_cast<I>(i);
  return lane < static_cast<I>(n);
}

// sum = step(sum, f(x[i])) over n elements, from `start` in every lane of four sums. The lanes are then folded pairwise.
template <typename S, typename F, typename Step>
inline typename Mem<S>::Compute FoldWith(const S* x, int64_t n, typename Mem<S>::Compute start, const F& f, const Step& step) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes, kSums = 4;
  Vec<E> sums[kSums];
  for (Vec<E>& s : sums) s = Splat(start);
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int k = 0; k < kSums; ++k) sums[k] = step(sums[k], f(Mem<S>::Load(x + i + k * kLanes)));
  }
  for (int k = 0; i + kLanes <= n; i += kLanes, k = (k + 1) % kSums) sums[k] = step(sums[k], f(Mem<S>::Load(x + i)));
  if (i < n) {
    const Vec<E> last = step(sums[kSums - 1], f(Mem<S>::LoadN(x + i, n - i)));
    sums[kSums - 1] = LanesBelow<E>(n - i) ? last : sums[kSums - 1];
  }
  Vec<E> all = step(step(sums[0], sums[1]), step(sums[2], sums[3]));
  E lanes[kLanes];
  StoreBytes(lanes, all);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = step(Splat(lanes[k]), Splat(lanes[k + width]))[0];
  }
  return lanes[0];
}

struct Plus {
  template <typename V>
  V operator()(V a, V b) const {
    return a + b;
  }
};
struct Times {
  template <typename V>
  V operator()(V a, V b) const {
    return a * b;
  }
};
// NaN if either is NaN.
struct Larger {
  template <typename V>
  V operator()(V a, V b) const {
    return (a > b) | (a != a) ? a : b;
  }
};
struct Smaller {
  template <typename V>
  V operator()(V a, V b) const {
    return (a < b) | (a != a) ? a : b;
  }
};
struct Same {
  template <typename V>
  V operator()(V v) const {
    return v;
  }
};

// Calls f(vector) -> vector for n elements of x and stores to y.
template <typename S, typename F>
inline void Map(S* y, const S* x, int64_t n, const F& f) {
  constexpr int kLanes = Mem<S>::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Mem<S>::Store(y + i, f(Mem<S>::Load(x + i)));
  if (i < n) Mem<S>::StoreN(y + i, f(Mem<S>::LoadN(x + i, n - i)), n - i);
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_FOLD_H_

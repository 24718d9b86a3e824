// Reduces contiguous elements with several vectors at once. The order depends only on the count.
#ifndef OPWIRE_KERNELS_OPS_SIMD_REDUCTION_H_
#define OPWIRE_KERNELS_OPS_SIMD_REDUCTION_H_

#include <utility>

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

// Reads and writes a vector's elements: all of its lanes, or the first `count`.
struct Whole {
  template <typename S>
  auto Load(const S* p) const {
    return Mem<S>::Load(p);
  }
  template <typename S, typename V>
  void Store(S* p, V v) const {
    Mem<S>::Store(p, v);
  }
};
struct Part {
  int64_t count;
  template <typename S>
  auto Load(const S* p) const {
    return Mem<S>::LoadN(p, count);
  }
  template <typename S, typename V>
  void Store(S* p, V v) const {
    Mem<S>::StoreN(p, v, count);
  }
};

// Calls f(i, lanes) for the vectors of n elements with computing type E. i is the position of their
// first element. lanes is a Whole, or a Part for the last vector.
template <typename E, typename F>
inline void ForVectors(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + Mem<E>::kLanes <= n; i += Mem<E>::kLanes) f(i, Whole());
  if (i < n) f(i, Part{n - i});
}

// sum = step(sum, f(i, lanes)) over the vectors of n elements, from `start` in every lane of four
// sums. Blocks of 64 vectors a sum, and then the lanes, are reduced pairwise, so that the error of
// a sum grows with the logarithm of n (N. Higham, The accuracy of floating point summation, 1993).
template <typename E, typename F, typename Step>
inline E ReduceVectors(int64_t n, E start, const F& f, const Step& step) {
  constexpr int kLanes = Mem<E>::kLanes, kSums = 4;
  constexpr int64_t kBlock = int64_t{64} * kSums * kLanes;
  Vec<E> sums[kSums];
  for (Vec<E>& s : sums) s = Splat(start);
  // Totals of 2^k blocks each; k decreases.
  Vec<E> totals[64];
  int top = 0;
  int64_t i = 0;
  for (int64_t blocks = 1; n - i > kBlock; ++blocks) {
    for (const int64_t end = i + kBlock; i < end; i += kSums * kLanes) {
      for (int k = 0; k < kSums; ++k) sums[k] = step(sums[k], f(i + k * kLanes, Whole()));
    }
    Vec<E> total = step(step(sums[0], sums[1]), step(sums[2], sums[3]));
    for (int64_t pairs = blocks; pairs % 2 == 0; pairs /= 2) total = step(totals[--top], total);
    totals[top++] = total;
    for (Vec<E>& s : sums) s = Splat(start);
  }
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int k = 0; k < kSums; ++k) sums[k] = step(sums[k], f(i + k * kLanes, Whole()));
  }
  for (int k = 0; i + kLanes <= n; i += kLanes, k = (k + 1) % kSums)
    sums[k] = step(sums[k], f(i, Whole()));
  if (i < n) {
    const Vec<E> last = step(sums[kSums - 1], f(i, Part{n - i}));
    sums[kSums - 1] = LanesBelow<E>(n - i) ? last : sums[kSums - 1];
  }
  Vec<E> all = step(step(sums[0], sums[1]), step(sums[2], sums[3]));
  while (top > 0) all = step(totals[--top], all);
  E lanes[kLanes];
  StoreBytes(lanes, all);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = step(Splat(lanes[k]), Splat(lanes[k + width]))[0];
  }
  return lanes[0];
}
// The same for f(x[i]) over n elements of x.
template <typename S, typename F, typename Step>
inline typename Mem<S>::Compute ReduceWith(const S* x, int64_t n, typename Mem<S>::Compute start,
                                           const F& f, const Step& step) {
  return ReduceVectors(
      n, start, [&](int64_t i, auto lanes) { return f(lanes.Load(x + i)); }, step);
}

// Of lanes in groups, those of a before those of b: the sums of the first half of each group and
// its second half.
template <int kGroup, typename V, int... kLane>
inline V AddHalves(V a, V b, std::integer_sequence<int, kLane...>) {
  constexpr int kHalf = kGroup / 2;
  return __builtin_shufflevector(a, b, (kLane / kHalf * kGroup + kLane % kHalf)...) +
         __builtin_shufflevector(a, b, (kLane / kHalf * kGroup + kLane % kHalf + kHalf)...);
}
// Lane i of the result is the sum of v[i]'s lanes, for as many vectors as one has lanes. They are
// overwritten.
template <typename E, int kGroup = Mem<E>::kLanes>
inline Vec<E> SumsOf(Vec<E>* v) {
  for (int i = 0; i < kGroup / 2; ++i)
    v[i] = AddHalves<kGroup>(v[2 * i], v[2 * i + 1],
                             std::make_integer_sequence<int, Mem<E>::kLanes>());
  if constexpr (kGroup > 2) return SumsOf<E, kGroup / 2>(v);
  return v[0];
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

// Calls f(vector) -> vector for n elements of x, and stores the results to y.
template <typename S, typename F>
inline void Map(S* y, const S* x, int64_t n, const F& f) {
  ForVectors<typename Mem<S>::Compute>(
      n, [&](int64_t i, auto lanes) { lanes.Store(y + i, f(lanes.Load(x + i))); });
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_REDUCTION_H_

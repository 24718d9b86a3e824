// The maximum of a row and the sum of exp(x - maximum), in one reading: Milakov and Gimelshein,
// "Online normalizer calculation for softmax" (2018).
#include "kernels/ops/gpu/chunks.cuh"

namespace opw::softmax {

// The maximum and the sum of the elements so far. If there are none, or only -inf and NaN, the
// maximum is -inf. A NaN makes the sum NaN.
template <typename C>
struct Online {
  C most, sum;
};
template <typename C>
OPW_DEVICE Online<C> NothingSeen() {
  return {-Infinity<C>(), C(0)};
}

template <typename C>
OPW_DEVICE Online<C> ShuffleXor(const Online<C>& v, int mask) {
  return {opw::ShuffleXor(v.most, mask), opw::ShuffleXor(v.sum, mask)};
}
template <typename C>
OPW_DEVICE Online<C> ShuffleFrom(const Online<C>& v, int lane) {
  return {opw::ShuffleFrom(v.most, lane), opw::ShuffleFrom(v.sum, lane)};
}

struct Join {
  template <typename C>
  __device__ Online<C> operator()(const Online<C>& a, const Online<C>& b) const {
    const C most = Larger(a.most, b.most), base = FiniteOrZero(most);
    return {most, a.sum * Exp(a.most - base) + b.sum * Exp(b.most - base)};
  }
};
template <typename C>
OPW_DEVICE C LogSumExp(const Online<C>& o) {
  return o.most + Log(o.sum);
}

// Takes `count` vectors of elements in.
template <typename T>
OPW_DEVICE void Take(Online<ComputeOf<T>>& o, const Wide<T>* v, int count) {
  using C = ComputeOf<T>;
  C most = o.most;
#pragma unroll
  for (int b = 0; b < count; ++b) {
#pragma unroll
    for (int k = 0; k < kPerVector<T>; ++k) most = Larger(most, Load(v[b].Get(k)));
  }
  const C base = FiniteOrZero(most);
  C sum = 0;
#pragma unroll
  for (int b = 0; b < count; ++b) {
#pragma unroll
    for (int k = 0; k < kPerVector<T>; ++k) sum += ExpFor<T>(Load(v[b].Get(k)) - base);
  }
  o.sum = o.sum * Exp(o.most - base) + sum;
  o.most = most;
}
template <typename T>
OPW_DEVICE void TakeOne(Online<ComputeOf<T>>& o, T v) {
  using C = ComputeOf<T>;
  const C most = Larger(o.most, Load(v)), base = FiniteOrZero(most);
  o.sum = o.sum * Exp(o.most - base) + ExpFor<T>(Load(v) - base);
  o.most = most;
}

// Of n elements, for all threads of the group.
template <typename T, int kLanes>
OPW_DEVICE Online<ComputeOf<T>> OnlineOf(const T* x, i64 n) {
  Online<ComputeOf<T>> o = NothingSeen<ComputeOf<T>>();
  ForSpan<kLanes, 4, false>(
      x, n, [&](i64 at) { TakeOne(o, x[at]); },
      [&](const Wide<T>* v, int count, i64, i64) { Take(o, v, count); });
  return GroupReduce<kLanes>(o, Join(), NothingSeen<ComputeOf<T>>());
}
// Of a row that its group holds.
template <int kLanes, typename T, int kVectors, Ends kEnds>
OPW_DEVICE Online<ComputeOf<T>> OnlineOf(const OnChip<T, kLanes, kVectors, kEnds>& row) {
  using C = ComputeOf<T>;
  C most = -Infinity<C>(), sum = 0;
  row.Each([&](C v) { most = Larger(most, v); });
  most = GroupReduce<kLanes>(
      most, [](C a, C b) { return Larger(a, b); }, -Infinity<C>());
  const C base = FiniteOrZero(most);
  row.Each([&](C v) { sum += ExpFor<T>(v - base); });
  return {most, GroupReduce<kLanes>(sum, Sum(), C(0))};
}
template <int kLanes, typename T, int kVectors, int kThreads, Ends kEnds>
OPW_DEVICE Online<ComputeOf<T>> OnlineOf(const Held<T, kLanes, kVectors, kThreads, kEnds>& row) {
  using C = ComputeOf<T>;
  const auto largest = [](C a, C b) { return Larger(a, b); };
  const auto pool = [&](const Online<C>& o) {
    const C most = WarpReduce(o.most, largest);
    return Online<C>{most, WarpReduce(o.sum * Exp(o.most - FiniteOrZero(most)), Sum())};
  };
  C most = -Infinity<C>(), sum = 0;
  row.Each([&](C v) { most = Larger(most, v); });
  most = WarpReduce(most, largest);
  const C base = FiniteOrZero(most);
  row.Each([&](C v) { sum += ExpFor<T>(v - base); });
  return JoinWarps<kLanes>(Online<C>{most, WarpReduce(sum, Sum())}, pool, Join(), NothingSeen<C>());
}

}  // namespace opw::softmax

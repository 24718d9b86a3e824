// Folds: of rows, of columns, and of the states that folds of parts came to. The order is fixed by the grid, so results have equal bits in each run.
#include "kernels/ops/reduce/gpu_ops.cuh"

namespace opw::reduce {

// A result, or the state behind it.
template <typename Op, bool kFinal>
OPW_DEVICE void Put(const FoldParams& p, i64 at, const typename Op::State& s) {
  if constexpr (kFinal) static_cast<typename Op::Out*>(p.y)[at] = Op::Finish(s, p.count);
  else static_cast<typename Op::State*>(p.y)[at] = s;
}
OPW_DEVICE i64 ChunkEnd(const FoldParams& p) {
  const i64 end = (static_cast<i64>(blockIdx.y) + 1) * p.chunk;
  return end < p.extent ? end : p.extent;
}

// Rows (inner is 1), each by kLanes lanes of a warp or, with 0, a block.
template <typename Op, int kLanes, bool kFinal>
OPW_DEVICE void FoldRows(const FoldParams& p) {
  using T = typename Op::Element;
  using State = typename Op::State;
  constexpr int kStates = Op::kArg ? 1 : kPerVector<T>;
  const i64 begin = static_cast<i64>(blockIdx.y) * p.chunk, end = ChunkEnd(p);
  ForRows<kLanes>(p.columns, [&](i64 row, bool there) {
    const T* const x = static_cast<const T*>(p.x) + row * p.extent + begin;
    State states[kStates], edges = Op::Identity();
#pragma unroll
    for (int k = 0; k < kStates; ++k) states[k] = Op::Identity();
    ForSpan<kLanes, sizeof(T) == 1 ? 2 : 4, false>(
        x, there ? end - begin : 0,
        [&](i64 at) {
          State one = Op::Identity();
          Op::Take(one, Load(x[at]), begin + at);
          edges = Op()(edges, one);
        },
        [&](const Wide<T>* v, int count, i64 at, i64 step) {
#pragma unroll
          for (int b = 0; b < count; ++b) {
#pragma unroll
            for (int k = 0; k < kPerVector<T>; ++k) Op::Take(states[k % kStates], Load(v[b].Get(k)), begin + at + b * step + k);
          }
        });
#pragma unroll
    for (int k = 1; k < kStates; ++k) states[0] = Op()(states[0], states[k]);
    const State all = GroupReduce<kLanes>(Op()(states[0], edges), Op(), Op::Identity());
    if (there && GroupRank<kLanes>() == 0) Put<Op, kFinal>(p, row * p.chunks + blockIdx.y, all);
  });
}

// A thread's vector of up to kWidth neighbouring columns: where the first lies in x, and where what it comes to goes.
struct Columns {
  i64 from, to;
  int count;  // 0: there are none
};
template <bool kFinal>
OPW_DEVICE Columns ColumnsAt(const FoldParams& p, int width) {
  const i64 vector = (static_cast<i64>(blockIdx.x) << p.lane_bits) + (static_cast<int>(threadIdx.x) & ((1 << p.lane_bits) - 1));
  if (vector >= p.vectors) return {0, 0, 0};
  const i64 each = (p.inner + width - 1) / width, outer = each == p.vectors ? 0 : vector / each, i = (vector - outer * each) * width;
  return {outer * p.extent * p.inner + i, (kFinal ? outer : outer * p.chunks + blockIdx.y) * p.inner + i,
          p.inner - i < width ? static_cast<int>(p.inner - i) : width};
}

// Joins what the slices of a block hold for their columns, slice by slice, and puts it. All 256 threads take part.
template <typename Op, bool kFinal, int kWidth>
OPW_DEVICE void PutColumns(const FoldParams& p, const Columns& c, const typename Op::State (&states)[kWidth]) {
  using State = typename Op::State;
  constexpr int kThreads = 256, kPitch = kThreads + (kWidth > 1 ? 4 : 0);  // so that neighbouring columns lie in banks of their own
  const int t = static_cast<int>(threadIdx.x), lanes = 1 << p.lane_bits;
  if (lanes == kThreads) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (k < c.count) Put<Op, kFinal>(p, c.to + k, states[k]);
    }
    return;
  }
  __shared__ State parts[kWidth][kPitch];
  __shared__ i64 to[kThreads / 2];
  __shared__ int counts[kThreads / 2];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) parts[k][t] = states[k];
  if (t < lanes) to[t] = c.to, counts[t] = c.count;
  __syncthreads();
  for (int u = t; u < kWidth << p.lane_bits; u += kThreads) {
    const int lane = u / kWidth, k = u % kWidth;
    State all = parts[k][lane];
#pragma unroll 8
    for (int slice = lane + lanes; slice < kThreads; slice += lanes) all = Op()(all, parts[k][slice]);
    if (k < counts[lane]) Put<Op, kFinal>(p, to[lane] + k, all);
  }
}

// Takes rows i, i + step, ... below `end` in, kBatch loads at a time. load(i) gives the vector of row i.
template <typename Op, int kBatch, int kWidth, typename F>
OPW_DEVICE void TakeRows(typename Op::State (&states)[kWidth], i64 i, i64 end, int step, const F& load) {
  using V = decltype(load(i));
  const auto take = [&](const V& v, i64 at) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) Op::Take(states[k], Load(v.Get(k)), at);
  };
#pragma unroll 1
  for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
    V v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) v[b] = load(i + b * step);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) take(v[b], i + b * step);
  }
#pragma unroll 1
  for (; i < end; i += step) take(load(i), i);
}

// Columns, in blocks of 256 threads: 2^lane_bits vectors of kWidth neighbours, each by as many threads as are left, which take turns.
template <typename Op, int kWidth, bool kFinal>
OPW_DEVICE void FoldColumns(const FoldParams& p) {
  using T = typename Op::Element;
  constexpr int kBatch = kWidth >= 16 ? 2 : Op::kArg ? 4 : 8, kSlow = kWidth >= 16 ? 2 : 4;
  const int t = static_cast<int>(threadIdx.x), slices = static_cast<int>(blockDim.x) >> p.lane_bits;
  const Columns c = ColumnsAt<kFinal>(p, kWidth);
  const T* const x = static_cast<const T*>(p.x) + c.from;
  const i64 begin = static_cast<i64>(blockIdx.y) * p.chunk + (t >> p.lane_bits), end = ChunkEnd(p);
  typename Op::State states[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) states[k] = Op::Identity();
  if (c.count == kWidth && p.inner % kWidth == 0 && Aligned<T, kWidth>(x)) {
    TakeRows<Op, kBatch, kWidth>(states, begin, end, slices, [&](i64 i) { return LoadVector<T, kWidth>(x + i * p.inner); });
  } else if (c.count > 0) {
    // Where there are a vector's elements before the first one, and behind the last.
    const bool inside = c.from + begin * p.inner >= kWidth && c.from + (end - 1) * p.inner + 2 * kWidth <= p.columns * p.extent;
    if (sizeof(T) * kWidth == 16 && inside) {
      if constexpr (sizeof(T) * kWidth == 16) TakeRows<Op, kSlow, kWidth>(states, begin, end, slices, [&](i64 i) { return LoadShifted(x + i * p.inner); });
    } else {
      TakeRows<Op, kSlow, kWidth>(states, begin, end, slices, [&](i64 i) { return LoadSome<T, kWidth>(x + i * p.inner, c.count); });
    }
  }
  PutColumns<Op, kFinal>(p, c, states);
}

// States, as columns.
template <typename Op, bool kFinal>
OPW_DEVICE void FoldStates(const FoldParams& p) {
  const int t = static_cast<int>(threadIdx.x), slices = static_cast<int>(blockDim.x) >> p.lane_bits;
  const Columns c = ColumnsAt<kFinal>(p, 1);
  const typename Op::State* const x = static_cast<const typename Op::State*>(p.x) + c.from;
  const i64 end = ChunkEnd(p);
  typename Op::State states[1] = {Op::Identity()};
  if (c.count > 0) {
#pragma unroll 4
    for (i64 i = static_cast<i64>(blockIdx.y) * p.chunk + (t >> p.lane_bits); i < end; i += slices) states[0] = Op()(states[0], x[i * p.inner]);
  }
  PutColumns<Op, kFinal>(p, c, states);
}

}  // namespace opw::reduce

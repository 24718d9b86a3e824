// embedding_backward. Positions are sorted by the rows that they name, and summed in that order in
// spans of one length. Rows with parts in several spans are joined. Spans depend only on the sizes,
// and their contents only on the indices, so every run adds in one order.
#include "kernels/ops/gpu/scan.cuh"
#include "kernels/ops/shape/gpu_params.h"

namespace opw::shape {

template <typename P>
inline constexpr int kMostRows = 2048 / static_cast<int>(sizeof(P));  // of a block that groups

// Reads indices once, and reports those that name no row.
template <typename I, typename P>
OPW_DEVICE void FindPlaces(const EmbeddingBackwardParams& p) {
  for (i64 n = Index(); n < kGroupThreads * p.each; n += Stride()) {
    i64 place = -1;
    if (n < p.positions) {
      place = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + n), p.rows);
      if (place < 0) ReportOutOfRange(p.reporter, 1, n);
    }
    static_cast<P*>(p.places)[n] = static_cast<P>(place);
  }
}

// Groups the positions of some neighbouring rows, for which a block reads all places twice. The
// first pass counts the positions of each row, and those of earlier rows, which give the beginning
// of the block's part of the order. Rows without positions become zeros.
template <typename T, typename P>
OPW_DEVICE void GroupRows(const EmbeddingBackwardParams& p) {
  constexpr int kWarps = kGroupThreads / OPW_WARP, kEach = 16 / static_cast<int>(sizeof(P)),
                kBatch = 4;
  __shared__ P starts[kWarps][kMostRows<P>];  // per warp and row: the number of its positions, then
                                              // the index of the next one in the order
  __shared__ bool absent[kMostRows<P>];
  const int rows = 1 << p.row_bits, t = static_cast<int>(threadIdx.x);
  const i64 first = static_cast<i64>(blockIdx.x) << p.row_bits, segment = p.each * OPW_WARP;
  const P* const places = static_cast<const P*>(p.places) + Warp() * segment;
  P* const own = starts[Warp()];
  for (int i = t; i < kWarps * rows; i += kGroupThreads)
    starts[i >> p.row_bits][i & (rows - 1)] = 0;
  __syncthreads();
  P below = 0, here = 0;
  const P begin = static_cast<P>(first);
  for (i64 i = Lane() * kEach; i < segment; i += kBatch * OPW_WARP * kEach) {
    Vector<P, kEach> v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (i + b * OPW_WARP * kEach < segment)
        v[b] = LoadVector<P, kEach>(places + i + b * OPW_WARP * kEach);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (i + b * OPW_WARP * kEach >= segment) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const P place = v[b].v[k], at = place - begin;
        below += place < begin;
        if (at < static_cast<P>(rows)) {
          ++here;
          atomicAdd(&own[at], P(1));
        }
      }
    }
  }
  below = BlockReduce(below, Sum(), P(0));
  P total = 0, all;
  if (t < rows) {
    for (int w = 0; w < kWarps; ++w) total += starts[w][t];
    absent[t] = total == 0;
  }
  P start = below + SumBefore<0>(total, all);
  if (t < rows) {
    for (int w = 0; w < kWarps; ++w) {
      const P n = starts[w][t];
      starts[w][t] = start;
      start += n;
    }
  }
  if (t == 0 && blockIdx.x == gridDim.x - 1)
    *static_cast<i64*>(p.found) = static_cast<i64>(below + all);
  __syncthreads();

  const int lanes = 1 << p.lane_bits, lane = t & (lanes - 1);
  for (int r = t >> p.lane_bits; r < rows && first + r < p.rows;
       r += kGroupThreads >> p.lane_bits) {
    if (!absent[r]) continue;
    T* const y = static_cast<T*>(p.y) + (first + r) * p.columns;
    const Span<T> s = SpanOf(y, p.columns);
    for (int e = lane; e < s.head + s.tail; e += lanes) y[s.Edge(e)] = T{};
    for (i64 v = lane; v < s.body; v += lanes) StoreWhole(y + s.At(v), {0, 0, 0, 0});
  }

  if (Ballot(here != 0) == 0) return;
  for (i64 i = Lane(); i < segment;
       i += kBatch * OPW_WARP) {  // segments are whole batches of all lanes
    P batch[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) batch[b] = places[i + b * OPW_WARP];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const P at = batch[b] - begin;
      const bool is_here = at < static_cast<P>(rows);
      if (Ballot(is_here) == 0) continue;
      const P to = CountInOrder<0>(own, is_here ? static_cast<int>(at) : -1, p.row_bits);
      if (!is_here) continue;
      static_cast<P*>(p.order)[to] = static_cast<P>(Warp() * segment + i + b * OPW_WARP);
      static_cast<P*>(p.named)[to] = batch[b];
    }
  }
}

// Sums a span of the order, for the group's columns. Rows that are only in this span are written.
// For the row that begins before it and the one that continues after it a partial sum is kept.
template <typename T, typename P, int kWidth>
OPW_DEVICE void SumSpan(const EmbeddingBackwardParams& p, i64 span, i64 found) {
  using C = ComputeOf<T>;
  constexpr int kBatch = 8;
  const P *const order = static_cast<const P*>(p.order), *const named =
                                                             static_cast<const P*>(p.named);
  const i64 begin = span * p.span, end = begin + p.span < found ? begin + p.span : found;
  const bool began = begin > 0 && named[begin - 1] == named[begin],
             goes_on = end < found && named[end] == named[end - 1];
  const i64 lanes = i64(1) << p.lane_bits, step = gridDim.y * lanes * kWidth;
  for (i64 column = (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * kWidth; column < p.columns;
       column += step) {
    const T* const grad = static_cast<const T*>(p.grad) + column;
    P row = named[begin];
    bool first = began;
    C sums[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] = 0;
    const auto keep = [&](int which) {
      Vector<C, kWidth> v;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) v.v[k] = sums[k];
      StoreVector(static_cast<C*>(p.partials) + (span * 2 + which) * p.columns + column, v);
    };
    const auto finish = [&] {
      T* const y = static_cast<T*>(p.y) + static_cast<i64>(row) * p.columns + column;
      if (first)
        keep(0);
      else if constexpr (kWidth == 1)
        *y = Store<T>(sums[0]);
      else
        StoreWide(y, RoundAll<T>(sums), true);
    };
    for (i64 i = begin; i < end; i += kBatch) {
      P rows[kBatch];
      Vector<T, kWidth> v[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (i + b >= end) continue;
        rows[b] = named[i + b];
        v[b] = LoadVector<T, kWidth>(grad + static_cast<i64>(order[i + b]) * p.columns);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (i + b >= end) continue;
        if (rows[b] != row) {
          finish();
          first = false;
          row = rows[b];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] = 0;
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += Load(v[b].v[k]);
      }
    }
    if (goes_on && !first)
      keep(1);
    else
      finish();
  }
}
template <typename T, typename P, int kWidth>
OPW_DEVICE void SumSpans(const EmbeddingBackwardParams& p) {
  const i64 found = *static_cast<const i64*>(p.found), span = Index() >> p.lane_bits;
  if (span * p.span >= found) return;
  if (p.columns % kWidth == 0 && Aligned<T, kWidth>(static_cast<const T*>(p.grad)) &&
      Aligned<T, kWidth>(static_cast<T*>(p.y)))
    SumSpan<T, P, kWidth>(p, span, found);
  else
    SumSpan<T, P, 1>(p, span, found);
}

// Rows that continue after the span in which they begin. A block joins those of kJoinedSpans spans.
// As many slices of 32 threads add the partial sums of later spans; a slice takes every
// kJoinedSpans-th of them.
template <typename T, typename P, int kWidth>
OPW_DEVICE void JoinSpans(const EmbeddingBackwardParams& p) {
  using C = ComputeOf<T>;
  constexpr int kLanes = 32, kSlices = kJoinedSpans, kBatch = 4;
  __shared__ i64 rows[kJoinedSpans];  // -1: none
  __shared__ Vector<C, kWidth> parts[kSlices][kLanes];
  const i64 found = *static_cast<const i64*>(p.found),
            first = static_cast<i64>(blockIdx.x) * kJoinedSpans;
  const P* const named = static_cast<const P*>(p.named);
  const int t = static_cast<int>(threadIdx.x), lane = t % kLanes, slice = t / kLanes;
  if (t < kJoinedSpans) {
    const i64 begin = (first + t) * p.span, end = begin + p.span;
    rows[t] = -1;
    if (end < found && named[end] == named[end - 1] &&
        (begin == 0 || named[begin - 1] != named[end]))
      rows[t] = static_cast<i64>(named[end]);
  }
  __syncthreads();
  for (int s = 0; s < kJoinedSpans; ++s) {
    const i64 row = rows[s], span = first + s;
    if (row < 0) continue;
    for (i64 tile = blockIdx.y; tile * kLanes * kWidth < p.columns; tile += gridDim.y) {
      const i64 column = (tile * kLanes + lane) * kWidth;
      const bool there = column < p.columns;
      const C* const partials = static_cast<const C*>(p.partials) + (there ? column : 0);
      Vector<C, kWidth> sum{};
      if (slice == 0) sum = LoadVector<C, kWidth>(partials + (span * 2 + 1) * p.columns);
      bool more = true;
      for (i64 next = span + 1 + slice; more; next += kBatch * kSlices) {
        Vector<C, kWidth> v[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const i64 of = next + b * kSlices;
          more = of * p.span < found && static_cast<i64>(named[of * p.span]) ==
                                            row;  // then the spans before it belong to the row, too
          v[b] = {};
          if (more) v[b] = LoadVector<C, kWidth>(partials + of * 2 * p.columns);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sum.v[k] += v[b].v[k];
        }
      }
      parts[slice][lane] = sum;
      __syncthreads();
      if (slice == 0 && there) {
        T* const y = static_cast<T*>(p.y) + row * p.columns + column;
        for (int other = 1; other < kSlices; ++other) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sum.v[k] += parts[other][lane].v[k];
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k) y[k] = Store<T>(sum.v[k]);
      }
      __syncthreads();
    }
  }
}

}  // namespace opw::shape

// Reductions of rows, of columns, and of the states of partial reductions. The order is fixed by
// the grid, so results have equal bits in each run.
#include "kernels/ops/reduce/gpu_ops.cuh"

namespace opw::reduce {

// Stores a result, or the state from which it is computed.
template <typename Op, bool kFinal>
OPW_DEVICE void Put(const ReduceParams& p, i64 at, const typename Op::State& s) {
  if constexpr (kFinal)
    static_cast<typename Op::Out*>(p.y)[at] = Op::Finish(s, p.count);
  else
    static_cast<typename Op::State*>(p.y)[at] = s;
}
OPW_DEVICE i64 ChunkEnd(const ReduceParams& p, i64 chunk) {
  const i64 end = (chunk + 1) * p.chunk;
  return end < p.extent ? end : p.extent;
}

// Rows (inner is 1). A row is reduced by kLanes lanes of a warp, or with 0 by a block, or with -n
// by a cluster of n blocks, one cluster per row.
template <typename Op, int kLanes, bool kFinal>
OPW_DEVICE void ReduceRows(const ReduceParams& p) {
  using T = typename Op::Element;
  using State = typename Op::State;
  constexpr int kStates = Op::kArg ? 1 : kPerVector<T>;
  const i64 begin = static_cast<i64>(blockIdx.y) * p.chunk, end = ChunkEnd(p, blockIdx.y);
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kIsCluster<kLanes>) ClusterArrive();
#endif
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
            for (int k = 0; k < kPerVector<T>; ++k)
              Op::Take(states[k % kStates], Load(v[b].Get(k)), begin + at + b * step + k);
          }
        });
#pragma unroll
    for (int k = 1; k < kStates; ++k) states[0] = Op()(states[0], states[k]);
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
    if constexpr (kIsCluster<kLanes>) ClusterWait();  // all blocks have started
#endif
    const State all = GroupReduce<kLanes>(Op()(states[0], edges), Op(), Op::Identity());
    if (there && GroupRank<kLanes>() == 0) Put<Op, kFinal>(p, row * p.chunks + blockIdx.y, all);
  });
}

// A vector of up to kWidth neighbouring columns, by its number in all of x: the offset of the first
// column in x, and the offset of its result.
struct Columns {
  i64 from, to;
  int count;  // 0: no columns
};
// With kChunks each chunk has a result, and this returns the one of block y.
template <int kWidth, bool kChunks>
OPW_DEVICE Columns ColumnsAt(const ReduceParams& p, i64 vector) {
  if (vector >= p.vectors) return {0, 0, 0};
  const i64 each = (p.inner + kWidth - 1) / kWidth, outer = each == p.vectors ? 0 : vector / each,
            i = (vector - outer * each) * kWidth;
  return {outer * p.extent * p.inner + i,
          (kChunks ? outer * p.chunks + blockIdx.y : outer) * p.inner + i,
          p.inner - i < kWidth ? static_cast<int>(p.inner - i) : kWidth};
}
// The number of the first vector of block `block` of the grid.
OPW_DEVICE i64 FirstVector(const ReduceParams& p, i64 block) { return block << p.lane_bits; }

// Joins the states of the slices of a block of kThreads for `columns` columns, slice by slice, and
// calls put(column, joined state). A thread's states belong to lane `slot` % lanes of slice `slot`
// / lanes, or with -1 to none. at(column, slice) is the column's element e of a slice: element e %
// kWidth of lane e / kWidth. All threads take part. With kBlocks the blocks of a cluster have
// slices of the same columns. The first block then joins their results, in order.
template <typename Op, int kThreads, int kBlocks, int kWidth, typename At, typename F>
OPW_DEVICE void JoinSlices(int slot, int slices, int lanes, int columns,
                           const typename Op::State (&states)[kWidth], const At& at, const F& put) {
  using State = typename Op::State;
  constexpr int kPitch =
      kThreads + (kWidth > 1 ? 4 : 0);  // so that neighbouring columns use different banks
  const int t = static_cast<int>(threadIdx.x);
  __shared__ State parts[kWidth][kPitch];
  if (slot >= 0) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) parts[k][slot] = states[k];
  }
  __syncthreads();
  for (int column = t; column < columns; column += kThreads) {
    const u32 first = at(column, 0);
    State all = parts[first % kWidth][first / kWidth];
#pragma unroll 8
    for (int slice = 1; slice < slices; ++slice) {
      const u32 e = at(column, slice);
      all = Op()(all, parts[e % kWidth][static_cast<u32>(slice * lanes) + e / kWidth]);
    }
    if constexpr (kBlocks > 1)
      parts[first % kWidth][first / kWidth] = all;  // no other column uses this element
    else
      put(column, all);
  }
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    ClusterBarrier();
    if (blockIdx.x % kBlocks == 0) {
      for (int column = t; column < columns; column += kThreads) {
        const u32 first = at(column, 0);
        State of_block[kBlocks];
#pragma unroll
        for (int b = 0; b < kBlocks; ++b)
          of_block[b] = *InBlock(&parts[first % kWidth][first / kWidth], b);
#pragma unroll
        for (int b = 1; b < kBlocks; ++b) of_block[0] = Op()(of_block[0], of_block[b]);
        put(column, of_block[0]);
      }
    }
    ClusterBarrier();  // the first block has read the others' states
  }
#endif
}
// The same for vectors of columns with equal positions in all slices: those of a warp are joined in
// the warp.
template <typename Op, bool kFinal, bool kChunks, int kThreads, int kBlocks, int kWidth>
OPW_DEVICE void PutColumns(const ReduceParams& p, i64 block, typename Op::State (&states)[kWidth]) {
  const int t = static_cast<int>(threadIdx.x), lanes = 1 << p.lane_bits;
  const auto put = [&](int column, const typename Op::State& s) {
    const Columns c = ColumnsAt<kWidth, kChunks>(p, FirstVector(p, block) + column / kWidth);
    if (column % kWidth < c.count) Put<Op, kFinal>(p, c.to + column % kWidth, s);
  };
  if (lanes == kThreads) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) put(t * kWidth + k, states[k]);
    return;
  }
  for (int mask = lanes; mask < OPW_WARP; mask *= 2) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) states[k] = Op()(states[k], ShuffleXor(states[k], mask));
  }
  const int slot = lanes >= OPW_WARP ? t : Lane() < lanes ? Warp() * lanes + Lane() : -1;
  const int slices = kThreads / (lanes < OPW_WARP ? OPW_WARP : lanes);
  JoinSlices<Op, kThreads, kBlocks>(
      slot, slices, lanes, kWidth << p.lane_bits, states,
      [](int column, int) { return static_cast<u32>(column); }, put);
}

// Reduces rows i, i + step, ... below `end`, with kBatch loads at a time. load(i) returns the
// vector of row i.
template <typename Op, int kBatch, int kWidth, typename F>
OPW_DEVICE void TakeRows(typename Op::State (&states)[kWidth], i64 i, i64 end, int step,
                         const F& load) {
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
  constexpr int kRest = kBatch < 4 ? 1 : kBatch / 2;
#pragma unroll 1
  for (; i < end; i += kRest * step) {
    V v[kRest];
#pragma unroll
    for (int b = 0; b < kRest; ++b) {
      if (i + b * step < end) v[b] = load(i + b * step);
    }
#pragma unroll
    for (int b = 0; b < kRest; ++b) {
      if (i + b * step < end) take(v[b], i + b * step);
    }
  }
}

// Columns. A block of kThreads has 2^lane_bits vectors of kWidth neighbours. The threads of a
// vector share the rows of a chunk in turn: block y's chunk, or with kBlocks the chunk of the
// block's rank in its cluster.
template <typename Op, int kWidth, bool kFinal, int kThreads, int kBlocks, int kBatch>
OPW_DEVICE void ReduceColumns(const ReduceParams& p) {
  using T = typename Op::Element;
  constexpr int kSlow = kWidth >= 16 ? 2 : 4;
  const i64 block = blockIdx.x / kBlocks, chunk = kBlocks > 1 ? blockIdx.x % kBlocks : blockIdx.y;
  const int t = static_cast<int>(threadIdx.x), slices = kThreads >> p.lane_bits;
  const Columns c =
      ColumnsAt<kWidth, false>(p, FirstVector(p, block) + (t & ((1 << p.lane_bits) - 1)));
  const T* const x = static_cast<const T*>(p.x) + c.from;
  const i64 begin = chunk * p.chunk + (t >> p.lane_bits), end = ChunkEnd(p, chunk);
  typename Op::State states[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) states[k] = Op::Identity();
  if (c.count == kWidth && p.inner % kWidth == 0 && Aligned<T, kWidth>(x)) {
    TakeRows<Op, kBatch, kWidth>(states, begin, end, slices,
                                 [&](i64 i) { return LoadVector<T, kWidth>(x + i * p.inner); });
  } else if (c.count > 0) {
    // Whether a vector's elements exist before the first one and after the last.
    const bool inside = c.from + begin * p.inner >= kWidth &&
                        c.from + (end - 1) * p.inner + 2 * kWidth <= p.columns * p.extent;
    if (sizeof(T) * kWidth == 16 && inside) {
      if constexpr (sizeof(T) * kWidth == 16)
        TakeRows<Op, kSlow, kWidth>(states, begin, end, slices,
                                    [&](i64 i) { return LoadShifted(x + i * p.inner); });
    } else {
      TakeRows<Op, kSlow, kWidth>(states, begin, end, slices, [&](i64 i) {
        return LoadSome<T, kWidth>(x + i * p.inner, c.count);
      });
    }
  }
  PutColumns<Op, kFinal, !kFinal, kThreads, kBlocks>(p, block, states);
}

// Columns of rows that are not a whole number of vectors. A block reads 2^lane_bits aligned vectors
// of each row, and has kWidth columns less than these contain. A thread's rows have equal
// alignment, as the number of slices is a multiple of kWidth. It reduces aligned vectors; only the
// join of the slices determines their columns.
template <typename Op, int kWidth, bool kFinal, int kThreads, int kBlocks, int kBatch>
OPW_DEVICE void ReduceFrames(const ReduceParams& p) {
  using T = typename Op::Element;
  static_assert(kWidth == kPerVector<T>);
  const i64 block = blockIdx.x / kBlocks, chunk = kBlocks > 1 ? blockIdx.x % kBlocks : blockIdx.y;
  const int t = static_cast<int>(threadIdx.x), lanes = 1 << p.lane_bits,
            slices = kThreads >> p.lane_bits, most = kWidth * (lanes - 1);
  const i64 each = (p.inner + most - 1) / most, outer = block / each,
            first = (block - outer * each) * most;
  const int columns = p.inner - first < most ? static_cast<int>(p.inner - first) : most;
  const T* const x = static_cast<const T*>(p.x);
  const T* const beyond = x + p.columns * p.extent;
  // The number of elements of a slice's vectors before its first column.
  const T* const top = x + (outer * p.extent + chunk * p.chunk) * p.inner + first;
  const auto before = [&](int slice) {
    return Phase(top + slice * p.inner) / static_cast<int>(sizeof(T));
  };
  const int slice = t >> p.lane_bits, at = (t & (lanes - 1)) * kWidth - before(slice);
  const T* const own = x + (outer * p.extent * p.inner + first + at);  // of row 0
  i64 i = chunk * p.chunk + slice, end = ChunkEnd(p, chunk);
  typename Op::State states[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) states[k] = Op::Identity();
  if (at < columns && i < end) {
    const auto take_inside = [&](i64 row) {
      const T* const v = own + row * p.inner;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (v + k >= x && v + k < beyond) Op::Take(states[k], Load(v[k]), row);
      }
    };
    const i64 last = i + (end - 1 - i) / slices * slices;
    if (own + last * p.inner + kWidth > beyond) {
      take_inside(last);
      end = last;
    }
    if (i < end && own + i * p.inner < x) {
      take_inside(i);
      i += slices;
    }
    TakeRows<Op, kBatch, kWidth>(states, i, end, slices, [&](i64 row) {
      return LoadVector<T, kWidth>(own + row * p.inner);
    });
  }
  const i64 to = (kFinal || kBlocks > 1 ? outer : outer * p.chunks + blockIdx.y) * p.inner + first;
  JoinSlices<Op, kThreads, kBlocks>(
      t, slices, lanes, columns, states,
      [&](int column, int s) { return static_cast<u32>(column + before(s)); },
      [&](int column, const typename Op::State& s) { Put<Op, kFinal>(p, to + column, s); });
}

// Reduces states, as columns.
template <typename Op, bool kFinal>
OPW_DEVICE void ReduceStates(const ReduceParams& p) {
  const int t = static_cast<int>(threadIdx.x), slices = static_cast<int>(blockDim.x) >> p.lane_bits;
  const Columns c =
      ColumnsAt<1, false>(p, FirstVector(p, blockIdx.x) + (t & ((1 << p.lane_bits) - 1)));
  const typename Op::State* const x = static_cast<const typename Op::State*>(p.x) + c.from;
  const i64 end = ChunkEnd(p, blockIdx.y);
  typename Op::State states[1] = {Op::Identity()};
  if (c.count > 0) {
#pragma unroll 4
    for (i64 i = static_cast<i64>(blockIdx.y) * p.chunk + (t >> p.lane_bits); i < end; i += slices)
      states[0] = Op()(states[0], x[i * p.inner]);
  }
  PutColumns<Op, kFinal, !kFinal, 256, 1>(p, blockIdx.x, states);
}

}  // namespace opw::reduce

// softmax and log_softmax. Rows are held in registers or shared memory; longer rows are read twice;
// a few long rows are split among blocks. Columns have their own form.
#include "kernels/ops/softmax/gpu_online.cuh"
#include "kernels/ops/softmax/gpu_params.h"

namespace opw::softmax {

// Maps an element to exp(v - most) / sum, or to v - most - log(sum).
template <typename T, bool kLog>
struct Finish {
  using C = ComputeOf<T>;
  C most, factor;
  OPW_DEVICE explicit Finish(const Online<C>& o)
      : most(o.most), factor(kLog ? Log(o.sum) : QuotientFor<T>(C(1), o.sum)) {}
  OPW_DEVICE C operator()(C v, i64) const {
    return kLog ? v - most - factor : ExpFor<T>(v - most) * factor;
  }
};

template <typename T, bool kLog, typename Row, int kLanes>
OPW_DEVICE void RowsAs(const RowsParams& p) {
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    Row x;
    x.Load(static_cast<const T*>(p.x) + row * p.extent, there ? static_cast<int>(p.extent) : 0);
    x.Await();
    const Finish<T, kLog> finish(OnlineOf<kLanes>(x));
    x.Store(static_cast<T*>(p.y) + row * p.extent, finish);
  });
}
// Whether the rows are whole aligned vectors.
template <typename T>
OPW_DEVICE bool AllWhole(const RowsParams& p) {
  return ((reinterpret_cast<u64>(p.x) | static_cast<u64>(p.extent) * sizeof(T)) & 15) == 0;
}
template <typename T, bool kLog, int kLanes, int kVectors>
OPW_DEVICE void Rows(const RowsParams& p) {
  if (AllWhole<T>(p))
    RowsAs<T, kLog, OnChip<T, kLanes, kVectors, Ends::kWhole>, kLanes>(p);
  else
    RowsAs<T, kLog, OnChip<T, kLanes, kVectors>, kLanes>(p);
}
template <typename T, bool kLog, int kLanes, int kVectors, int kThreads>
OPW_DEVICE void HeldRows(const RowsParams& p) {
  if (AllWhole<T>(p))
    RowsAs<T, kLog, Held<T, kLanes, kVectors, kThreads, Ends::kWhole>, kLanes>(p);
  else
    RowsAs<T, kLog, Held<T, kLanes, kVectors, kThreads>, kLanes>(p);
}

template <typename T, bool kLog>
OPW_DEVICE void StreamedRows(const RowsParams& p) {
  ForRows<0>(p.rows, [&](i64 row, bool) {
    const T* const x = static_cast<const T*>(p.x) + row * p.extent;
    const Finish<T, kLog> finish(OnlineOf<T, 0>(x, p.extent));
    MapSpan<0, true>(x, static_cast<T*>(p.y) + row * p.extent, p.extent, finish);
  });
}

// Rows in chunks: one launch that reduces them, and one that writes.
template <typename T>
OPW_DEVICE void ReduceChunks(const RowsParams& p) {
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const i64 row = blockIdx.x;
  const Online<ComputeOf<T>> o =
      OnlineOf<T, 0>(static_cast<const T*>(p.x) + row * p.extent + c.begin, c.size);
  if (threadIdx.x == 0)
    static_cast<Online<ComputeOf<T>>*>(p.partials)[row * p.chunks + blockIdx.y] = o;
}
template <typename T, bool kLog>
OPW_DEVICE void WriteChunks(const RowsParams& p) {
  using C = ComputeOf<T>;
  const i64 row = blockIdx.x;
  const Online<C>* const partials = static_cast<const Online<C>*>(p.partials) + row * p.chunks;
  const Finish<T, kLog> finish(JoinChunks(partials, p.chunks, Join(), NothingSeen<C>()));
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const i64 at = row * p.extent + c.begin;
  MapSpan<0, false>(static_cast<const T*>(p.x) + at, static_cast<T*>(p.y) + at, c.size, finish);
}

// Columns: 32 neighbours per block. Each has blockDim.x / 32 threads that take its elements in
// turn.
template <typename T, bool kLog>
OPW_DEVICE void Columns(const RowsParams& p) {
  using C = ComputeOf<T>;
  __shared__ Online<C> parts[1024];
  const int column = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32,
            slices = static_cast<int>(blockDim.x) / 32;
  for (i64 first = static_cast<i64>(blockIdx.x) * 32; first < p.rows;
       first += static_cast<i64>(gridDim.x) * 32) {
    const i64 c = first + column;
    const bool there = c < p.rows;
    const i64 outer = there ? c / p.inner : 0,
              base = outer * p.extent * p.inner + (there ? c - outer * p.inner : 0);
    const T* const x = static_cast<const T*>(p.x) + base;
    T* const y = static_cast<T*>(p.y) + base;
    Online<C> o = NothingSeen<C>();
    if (there) {
#pragma unroll 4
      for (i64 i = slice; i < p.extent; i += slices) TakeOne(o, x[i * p.inner]);
    }
    parts[threadIdx.x] = o;
    __syncthreads();
    for (int s = slices / 2; s > 0; s /= 2) {
      if (slice < s) parts[threadIdx.x] = Join()(parts[threadIdx.x], parts[threadIdx.x + s * 32]);
      __syncthreads();
    }
    const Finish<T, kLog> finish(parts[column]);
    if (there) {
#pragma unroll 4
      for (i64 i = slice; i < p.extent; i += slices)
        y[i * p.inner] = Store<T>(finish(Load(x[i * p.inner]), i));
    }
    __syncthreads();
  }
}

}  // namespace opw::softmax

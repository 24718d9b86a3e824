// softmax_backward and log_softmax_backward. Rows are held in registers; longer rows are read
// twice; a few long rows are split among blocks. Columns have their own form.
#include "kernels/ops/gpu/chunks.cuh"
#include "kernels/ops/softmax/gpu_backward_params.h"

namespace opw::softmax {

// An element's term in the sum.
template <bool kLog, typename C>
OPW_DEVICE C Summand(C grad, C y) {
  return kLog ? grad : grad * y;
}

// Maps an element to its gradient, from the row's sum.
template <typename T, bool kLog>
struct FinishBackward {
  using C = ComputeOf<T>;
  C sum;
  OPW_DEVICE C operator()(C grad, C y) const {
    return kLog ? grad - ExpFor<T>(y) * sum : y * (grad - sum);
  }
  OPW_DEVICE C operator()(C grad, i64, T y) const { return (*this)(grad, Load(y)); }
};

template <typename T, bool kLog, int kLanes, int kVectors, bool kShifted>
OPW_DEVICE void BackwardRowsAs(const BackwardParams& p) {
  using C = ComputeOf<T>;
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    OnChip<T, kLanes, kVectors, kShifted ? Ends::kTrimmed : Ends::kWhole> grad, y;
    grad.Load(static_cast<const T*>(p.grad) + row * p.extent,
              there ? static_cast<int>(p.extent) : 0);
    y.LoadLike(grad, static_cast<const T*>(p.y) + row * p.extent);
    C sum = 0;
    grad.Places(
        [&](int i, int) {
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k)
            sum += Summand<kLog>(Load(grad.vectors[i].Get(k)), Load(y.vectors[i].Get(k)));
        },
        [&](int i, int) { sum += Summand<kLog>(Load(grad.edges[i]), Load(y.edges[i])); });
    grad.Forget();
    y.Forget();
    const FinishBackward<T, kLog> finish{GroupReduce<kLanes>(sum, Sum(), C(0))};
    T* const to = static_cast<T*>(p.grad_x) + row * p.extent;
    const bool aligned = Phase(to) == grad.phase;
    grad.Places(
        [&](int i, int at) {
          StoreWide(to + at, MapPairs(grad.vectors[i], y.vectors[i], finish), aligned);
        },
        [&](int i, int at) { to[at] = Store<T>(finish(Load(grad.edges[i]), Load(y.edges[i]))); });
  });
}
template <typename T, bool kLog, int kLanes, int kVectors>
OPW_DEVICE void BackwardRows(const BackwardParams& p) {
  const u64 addresses = reinterpret_cast<u64>(p.grad) | reinterpret_cast<u64>(p.y);
  if (((addresses | static_cast<u64>(p.extent) * sizeof(T)) & 15) == 0)
    BackwardRowsAs<T, kLog, kLanes, kVectors, false>(p);
  else
    BackwardRowsAs<T, kLog, kLanes, kVectors, true>(p);
}

// The sum of n elements starting with position `first`, for all threads of the block.
template <typename T, bool kLog>
OPW_DEVICE ComputeOf<T> SumOf(const BackwardParams& p, i64 first, i64 n) {
  using C = ComputeOf<T>;
  const T *const grad = static_cast<const T*>(p.grad) + first, *const y =
                                                                   static_cast<const T*>(p.y) +
                                                                   first;
  C sum = 0;
  ForSpan<0, 4, false, true>(
      grad, n, [&](i64 at) { sum += Summand<kLog>(Load(grad[at]), Load(y[at])); },
      [&](const Wide<T>* v, int count, i64 at, i64 step) {
        C own = 0;
#pragma unroll
        for (int b = 0; b < count; ++b) {
          const Wide<T> beside = LoadShifted(y + at + b * step);
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k)
            own += Summand<kLog>(Load(v[b].Get(k)), Load(beside.Get(k)));
        }
        sum += own;
      });
  return GroupReduce<0>(sum, Sum(), C(0));
}
template <bool kBack, typename T, bool kLog>
OPW_DEVICE void WriteBackward(const BackwardParams& p, i64 first, i64 n,
                              const FinishBackward<T, kLog>& finish) {
  const T* const y = static_cast<const T*>(p.y) + first;
  MapSpanWith<0, kBack, true>(
      static_cast<const T*>(p.grad) + first, static_cast<T*>(p.grad_x) + first, n,
      [&](i64 at) { return LoadShifted(y + at); }, [&](i64 at) { return y[at]; }, finish);
}

template <typename T, bool kLog>
OPW_DEVICE void BackwardStreamed(const BackwardParams& p) {
  ForRows<0>(p.rows, [&](i64 row, bool) {
    const FinishBackward<T, kLog> finish{SumOf<T, kLog>(p, row * p.extent, p.extent)};
    WriteBackward<true>(p, row * p.extent, p.extent, finish);
  });
}

// Rows in chunks: one launch that reduces them, and one that writes.
template <typename T, bool kLog>
OPW_DEVICE void BackwardReduceChunks(const BackwardParams& p) {
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const i64 row = blockIdx.x;
  const ComputeOf<T> sum = SumOf<T, kLog>(p, row * p.extent + c.begin, c.size);
  if (threadIdx.x == 0) static_cast<ComputeOf<T>*>(p.partials)[row * p.chunks + blockIdx.y] = sum;
}
template <typename T, bool kLog>
OPW_DEVICE void BackwardWriteChunks(const BackwardParams& p) {
  using C = ComputeOf<T>;
  const i64 row = blockIdx.x;
  const FinishBackward<T, kLog> finish{
      JoinChunks(static_cast<const C*>(p.partials) + row * p.chunks, p.chunks, Sum(), C(0))};
  const Chunk c = ChunkOf(p.extent, p.chunk);
  WriteBackward<false>(p, row * p.extent + c.begin, c.size, finish);
}

// Columns: 32 neighbours per block. Each has blockDim.x / 32 threads that take its elements in
// turn.
template <typename T, bool kLog>
OPW_DEVICE void BackwardColumns(const BackwardParams& p) {
  using C = ComputeOf<T>;
  __shared__ C parts[1024];
  const int column = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32,
            slices = static_cast<int>(blockDim.x) / 32;
  for (i64 first = static_cast<i64>(blockIdx.x) * 32; first < p.rows;
       first += static_cast<i64>(gridDim.x) * 32) {
    const i64 c = first + column;
    const bool there = c < p.rows;
    const i64 outer = there ? c / p.inner : 0,
              base = outer * p.extent * p.inner + (there ? c - outer * p.inner : 0);
    const T *const grad = static_cast<const T*>(p.grad) + base, *const y =
                                                                    static_cast<const T*>(p.y) +
                                                                    base;
    T* const grad_x = static_cast<T*>(p.grad_x) + base;
    C sum = 0;
    if (there) {
#pragma unroll 4
      for (i64 i = slice; i < p.extent; i += slices)
        sum += Summand<kLog>(Load(grad[i * p.inner]), Load(y[i * p.inner]));
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int s = slices / 2; s > 0; s /= 2) {
      if (slice < s) parts[threadIdx.x] += parts[threadIdx.x + s * 32];
      __syncthreads();
    }
    const FinishBackward<T, kLog> finish{parts[column]};
    if (there) {
#pragma unroll 4
      for (i64 i = slice; i < p.extent; i += slices)
        grad_x[i * p.inner] = Store<T>(finish(Load(grad[i * p.inner]), Load(y[i * p.inner])));
    }
    __syncthreads();
  }
}

}  // namespace opw::softmax

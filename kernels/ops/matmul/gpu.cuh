// Our own matrix products, with their epilogues. Tiles of 64 x 64 go through shared memory, for
// every element type and all strides. Products of few rows read the matrix once.
#include "kernels/ops/gpu/rows.cuh"
#include "kernels/ops/matmul/gpu_activation.cuh"
#include "kernels/ops/matmul/gpu_params.h"
#include "kernels/ops/matmul/gpu_tiles.cuh"

namespace opw::matmul {

// Integers are summed with wraparound, in at least u32; narrow floats in f32.
template <typename T>
struct SumOf {
  using Type = ComputeOf<T>;
};
template <>
struct SumOf<i8> {
  using Type = u32;
};
template <>
struct SumOf<i16> {
  using Type = u32;
};
template <>
struct SumOf<i32> {
  using Type = u32;
};
template <>
struct SumOf<u8> {
  using Type = u32;
};
template <>
struct SumOf<u16> {
  using Type = u32;
};
template <>
struct SumOf<i64> {
  using Type = u64;
};

// The epilogue for a float's sum of column j.
template <typename T, int kActivation, typename S>
OPW_DEVICE S Finished(const void* bias, i64 bias_n, i64 j, S sum) {
  if (bias != nullptr) sum += Load(static_cast<const T*>(bias)[j * bias_n]);
  return Activate<kActivation>(sum);
}

// x is of T, y of U and z of R; the bias is of T. blockIdx.x: tiles along n; y: tiles along m, in a
// loop; z: batches, in a loop. 256 threads.
template <typename T, typename U, typename R, int kActivation>
OPW_DEVICE void Tiles(const Params& p) {
  using S = typename SumOf<T>::Type;
  __shared__ S xs[kDepth][kTile + 1];
  __shared__ S ys[kDepth][kTile + 1];
  const int row = TileRow(), column = TileColumn();
  const i64 j0 = static_cast<i64>(blockIdx.x) * kTile;
  for (i64 b = blockIdx.z; b < p.batches; b += gridDim.z) {
    i64 at[3];
    OffsetsAt<true>(p.batch, b, at);
    const T* const x = static_cast<const T*>(p.x) + at[0];
    const U* const y = static_cast<const U*>(p.y) + at[1];
    R* const z = static_cast<R*>(p.z) + at[2];
    for (i64 i0 = static_cast<i64>(blockIdx.y) * kTile; i0 < p.m;
         i0 += static_cast<i64>(gridDim.y) * kTile) {
      S sum[kEach][kEach] = {};
      for (i64 l0 = 0; l0 < p.k; l0 += kDepth) {
        __syncthreads();
        for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
          // Neighbouring threads follow the contiguous axis.
          const int xl = p.x_k == 1 ? e % kDepth : e / kTile,
                    xi = p.x_k == 1 ? e / kDepth : e % kTile;
          const bool in_x = i0 + xi < p.m && l0 + xl < p.k;
          xs[xl][xi] = in_x ? static_cast<S>(Load(x[(i0 + xi) * p.x_m + (l0 + xl) * p.x_k])) : S(0);
          const int yl = p.y_k == 1 ? e % kDepth : e / kTile,
                    yj = p.y_k == 1 ? e / kDepth : e % kTile;
          const bool in_y = j0 + yj < p.n && l0 + yl < p.k;
          ys[yl][yj] = in_y ? static_cast<S>(Load(y[(l0 + yl) * p.y_k + (j0 + yj) * p.y_n])) : S(0);
        }
        __syncthreads();
        AddTileProducts(xs, ys, sum);
      }
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) {
          const i64 zi = i0 + row + i, zj = j0 + column + j;
          if (zi >= p.m || zj >= p.n) continue;
          R& to = z[zi * p.z_m + zj * p.z_n];
          if constexpr (kIsFloat<S>) {
            if (p.scale_x != nullptr)
              sum[i][j] = sum[i][j] * p.scale_x[zi * p.scale_m] * p.scale_y[zj * p.scale_n];
          }
          if constexpr (kIsFloat<S>)
            to = Store<R>(p.adds != 0 ? Load(to) + sum[i][j]
                                      : Finished<T, kActivation>(p.bias, p.bias_n, zj, sum[i][j]));
          else
            to = Store<R>(sum[i][j]);
        }
      }
    }
  }
}

// Multiplies kM rows of x by y. y's columns and x's rows are contiguous. Each column has 32
// threads, so y is read once, in order, and x is read from shared memory. T is a float; a thread
// loads kBatch vectors of a column at a time. With kNorm x is rms_norm(x, norm_weight), rounded;
// each block computes it for itself. blockIdx.x: 8 columns; z: batches, in a loop. 256 threads.
template <typename T, int kM, int kBatch, int kActivation, bool kNorm>
OPW_DEVICE void Vectors(const Params& p) {
  using S = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>, kLanes = 32,
                kHeld = 2048 / kM;  // vectors of a row of x: 32 KiB of all
  __shared__ Wide<T> held[kM][kHeld];
  const int thread = static_cast<int>(threadIdx.x), lane = GroupRank<kLanes>();
  const i64 column = static_cast<i64>(blockIdx.x) * (kThreads / kLanes) + thread / kLanes;
  const i64 j =
      column < p.n ? column : p.n - 1;  // another column, not stored: all threads stay together
  // The first vectors of y are prefetched before the previous kernels have ended. One lane of 8
  // prefetches a line of 128 bytes. More than a batch would evict the data that those kernels read.
  if (blockIdx.z == 0 && lane % 8 == 0) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const i64 l = static_cast<i64>(u * kLanes + lane) * kWidth;
      if (l < p.k) Prefetch(static_cast<const T*>(p.y) + j * p.y_n + l);
    }
  }
  AwaitPrevious();
  for (i64 b = blockIdx.z; b < p.batches; b += gridDim.z) {
    i64 at[3];
    OffsetsAt<true>(p.batch, b, at);
    const T* const x = static_cast<const T*>(p.x) + at[0];
    const T* const y = static_cast<const T*>(p.y) + at[1] + j * p.y_n;
    S sum[kM] = {};
    // Of x and of the block's columns, each row begins at a multiple of 16 bytes.
    const T* const norm_weight = static_cast<const T*>(p.norm_weight);
    S factor[kM];  // of x's rows
    const auto find_factors = [&] {
#pragma unroll 1
      for (int i = 0; i < kM; ++i) {
        S square = 0;
        ForSpan<0, 2, false>(
            x + i * p.x_m, p.k,
            [&](i64 l) { square = Fma(Load(x[i * p.x_m + l]), Load(x[i * p.x_m + l]), square); },
            [&](const Wide<T>* v, int count, i64, i64) {
#pragma unroll
              for (int u = 0; u < count; ++u) {
#pragma unroll
                for (int e = 0; e < kWidth; ++e)
                  square = Fma(Load(v[u].Get(e)), Load(v[u].Get(e)), square);
              }
            });
        const S all = BlockReduce(square, Sum(), S(0));
#pragma unroll
        for (int row = 0; row < kM; ++row) {
          if (row == i) factor[row] = 1 / Sqrt(all / static_cast<S>(p.k) + static_cast<S>(p.eps));
        }
      }
    };
    // The value of x's element `l` in a row with this factor.
    const auto normal = [&](T v, S scale, i64 l) {
      return Load(v) * scale * (norm_weight == nullptr ? S(1) : Load(norm_weight[l]));
    };
    const bool aligned = Phase(x) == 0 && Phase(static_cast<const T*>(p.y) + at[1]) == 0 &&
                         (kM == 1 || p.x_m % kWidth == 0) && (p.n == 1 || p.y_n % kWidth == 0);
    const i64 vectors = aligned ? p.k / kWidth : 0;
    for (i64 begin = 0; begin < vectors; begin += kHeld) {
      const int count = vectors - begin < kHeld ? static_cast<int>(vectors - begin) : kHeld;
      Wide<T> of_y[kBatch];
      const auto fetch = [&](int first) {
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
          const int v = first + lane + u * kLanes;
          if (v < count) of_y[u] = LoadAligned(y + (begin + v) * kWidth);
        }
      };
      fetch(0);
      if constexpr (kNorm) {
        if (begin == 0) find_factors();
      }
      __syncthreads();  // the previous rows have been used
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        for (int v = thread; v < count; v += kThreads) {
          const i64 first = (begin + v) * kWidth;
          held[i][v] = LoadAligned(x + i * p.x_m + first);
          if constexpr (kNorm) {
            S out[kWidth];
#pragma unroll
            for (int e = 0; e < kWidth; ++e)
              out[e] = normal(held[i][v].Get(e), factor[i], first + e);
            held[i][v] = RoundAll<T>(out);
          }
        }
      }
      __syncthreads();
#pragma unroll 1
      for (int first = 0;;) {
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
          const int v = first + lane + u * kLanes;
          if (v >= count) continue;
#pragma unroll
          for (int i = 0; i < kM; ++i) {
            const Wide<T> of_x = held[i][v];
#pragma unroll
            for (int e = 0; e < kWidth; ++e)
              sum[i] = Fma(Load(of_x.Get(e)), Load(of_y[u].Get(e)), sum[i]);
          }
        }
        first += kBatch * kLanes;
        if (first >= count) break;
        fetch(first);
        WarpBarrier();  // compilers delay no load beyond it, so all loads are in flight at once
      }
    }
    if constexpr (kNorm) {
      if (vectors == 0) find_factors();
    }
    for (i64 l = vectors * kWidth + lane; l < p.k; l += kLanes) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        T of_x = x[i * p.x_m + l];
        if constexpr (kNorm) of_x = Store<T>(normal(of_x, factor[i], l));
        sum[i] = Fma(Load(of_x), Load(y[l]), sum[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      const S all = GroupReduce<kLanes>(sum[i], Sum(), S(0));
      if (lane == 0 && column < p.n)
        (static_cast<T*>(p.z) + at[2])[i * p.z_m + column * p.z_n] =
            Store<T>(Finished<T, kActivation>(p.bias, p.bias_n, column, all));
    }
  }
}

// Applies the epilogue to a library's sums, elements of S, and writes R. x may be y if both have
// one type. The bias is of T.
template <typename T, typename S, typename R, int kActivation>
OPW_DEVICE void Finish(const FinishParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    static_cast<R*>(p.y)[i] = Store<R>(
        Finished<T, kActivation>(p.bias, p.bias_n, i % p.n, Load(static_cast<const S*>(p.x)[i])));
  }
}

}  // namespace opw::matmul

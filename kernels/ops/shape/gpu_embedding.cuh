// embedding_backward: a block has some rows of the result, and reads all indices in their order.
#include "kernels/ops/gpu/device.cuh"
#include "kernels/ops/shape/gpu_params.h"

namespace opw::shape {

inline constexpr int kScanned = 1024;  // indices at a time

// kRows rows by blockDim.x * kWidth columns a block, which is in column block `tile`. Each sum adds in ascending order of positions.
template <typename T, typename I, int kRows, int kWidth>
OPW_DEVICE void SumRows(const EmbeddingBackwardParams& p, i64 first, i64 tile) {
  using C = ComputeOf<T>;
  __shared__ Quad found[kScanned / 16];  // bytes: 1 + which of the block's rows an index names, 0: none of them
  u8* const bytes = reinterpret_cast<u8*>(found);
  const i64 column = (tile * blockDim.x + threadIdx.x) * kWidth;
  const bool there = column < p.columns;
  const T* const grad = static_cast<const T*>(p.grad) + column;
  const bool aligned = Aligned<T, kWidth>(grad) && Aligned<T, kWidth>(static_cast<T*>(p.y));
  C sums[kRows][kWidth];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[r][k] = 0;
  }
  for (i64 start = 0; start < p.positions; start += kScanned) {
    for (int i = static_cast<int>(threadIdx.x); i < kScanned; i += static_cast<int>(blockDim.x)) {
      i64 place = -1;
      if (start + i < p.positions) {
        place = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + start + i), p.rows);
        if (place < 0 && first == 0 && tile == 0) ReportOutOfRange(p.reporter, 1, start + i);
      }
      bytes[i] = place >= first && place < first + kRows ? static_cast<u8>(place - first + 1) : static_cast<u8>(0);
    }
    __syncthreads();
    for (int q = 0; q < kScanned / 16; ++q) {
      const Quad any = found[q];
      if ((any.x | any.y | any.z | any.w) == 0) continue;
      for (int i = q * 16; i < q * 16 + 16; ++i) {
        const int row = bytes[i];
        if (row == 0 || !there) continue;
        const T* const from = grad + (start + i) * p.columns;
        const Vector<T, kWidth> v = aligned ? LoadVector<T, kWidth>(from) : LoadSome<T, kWidth>(from, kWidth);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (row == r + 1) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sums[r][k] += Load(v.v[k]);
          }
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (!there || first + r >= p.rows) continue;
    Vector<T, kWidth> v;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v.v[k] = Store<T>(sums[r][k]);
    T* const to = static_cast<T*>(p.y) + (first + r) * p.columns + column;
    if (aligned) StoreVector(to, v);
    else StoreSome(to, v, kWidth);
  }
}
template <typename T, typename I, int kRows, int kWidth>
OPW_DEVICE void EmbeddingBackward(const EmbeddingBackwardParams& p) {
  for (i64 tile = blockIdx.y; tile * blockDim.x * kWidth < p.columns; tile += gridDim.y) {
    for (i64 first = static_cast<i64>(blockIdx.x) * kRows; first < p.rows; first += static_cast<i64>(gridDim.x) * kRows) {
      SumRows<T, I, kRows, kWidth>(p, first, tile);
    }
  }
}

}  // namespace opw::shape

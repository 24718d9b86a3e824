// Shared by tiles of attention: parts of matrices in shared memory, and the products of rows with
// other rows.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_TILES_CUH_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_TILES_CUH_

#include "kernels/ops/attention/gpu_params.h"
#include "kernels/ops/gpu/rows.cuh"

namespace opw::attention {

struct NoMask {};

// A tile has 16 * kRows rows and kOthers others. 16 neighbouring threads share kRows rows, and each
// has kEach of the others, kLanes apart.
inline constexpr int kThreads = 256, kOthers = 64, kLanes = 16, kEach = kOthers / kLanes;
template <typename C>
inline constexpr int kDepth = 64 / static_cast<int>(sizeof(C));  // of a product, staged at a time

// Copies kInner by kOuter elements into shared memory. Neighbouring threads copy neighbours along
// the inner axis. Elements beyond `inner` and `outer` become zeros.
template <int kInner, int kOuter, typename T, typename C>
OPW_DEVICE void StageAlong(C* to, int to_inner, int to_outer, const T* from, i64 inner, i64 outer,
                           i64 from_inner, i64 from_outer) {
  const int i = static_cast<int>(threadIdx.x) % kInner;
  const int there = i < inner ? static_cast<int>(outer < kOuter ? outer : kOuter) : 0;
  const int first = static_cast<int>(threadIdx.x) / kInner;
  from += i * from_inner + first * from_outer;
  const i64 step = from_outer * (kThreads / kInner);
#pragma unroll 4
  for (int o = first; o < kOuter; o += kThreads / kInner, from += step)
    to[i * to_inner + o * to_outer] = o < there ? Load(*from) : C(0);
}
// Copies kRows by kColumns elements into to[column][row], with kPitch between columns.
template <int kRows, int kColumns, int kPitch, typename T, typename C>
OPW_DEVICE void Stage(C* to, const T* from, i64 rows, i64 columns, i64 row_stride,
                      i64 column_stride) {
  if (column_stride == 1)
    StageAlong<kColumns, kRows>(to, kPitch, 1, from, columns, rows, column_stride, row_stride);
  else
    StageAlong<kRows, kColumns>(to, 1, kPitch, from, rows, columns, row_stride, column_stride);
}

// A matrix whose rows are multiplied: the address of its tile, and the number of rows from there to
// the end.
template <typename T>
struct Side {
  const T* from;
  i64 there, row, column;  // strides
};

// Adds to products[r][e] the product of this thread's row r and other e, over `depth` elements.
// `staged`: kDepth * (16 * kRows + kOthers + 2).
template <int kRows, typename T, typename C>
OPW_DEVICE void AddProducts(C (&products)[kRows][kEach], const Side<T>& rows, const Side<T>& others,
                            i64 depth, C* staged) {
  constexpr int kTile = kLanes * kRows, kStep = kDepth<C>;
  C* const of_others = staged + kStep * (kTile + 1);
  const int row = static_cast<int>(threadIdx.x) / kLanes * kRows,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  for (i64 l0 = 0; l0 < depth; l0 += kStep) {
    __syncthreads();
    Stage<kTile, kStep, kTile + 1>(staged, rows.from + l0 * rows.column, rows.there, depth - l0,
                                   rows.row, rows.column);
    Stage<kOthers, kStep, kOthers + 1>(of_others, others.from + l0 * others.column, others.there,
                                       depth - l0, others.row, others.column);
    __syncthreads();
#pragma unroll 4
    for (int l = 0; l < kStep; ++l) {
      C a[kRows], b[kEach];
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[r] = staged[l * (kTile + 1) + row + r];
#pragma unroll
      for (int e = 0; e < kEach; ++e) b[e] = of_others[l * (kOthers + 1) + lane + e * kLanes];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) products[r][e] = Fma(a[r], b[e], products[r][e]);
      }
    }
  }
}

// Adds to sums[r][e] the sum over others of weights[row of this thread's r][other] times the
// other's column `lane + e * 16`. `staged`: kDepth * kColumns.
template <int kRows, int kColumns, typename T, typename C>
OPW_DEVICE void AddWeighted(C (&sums)[kRows][kColumns / kLanes], const C (*weights)[kOthers + 1],
                            const Side<T>& others, i64 columns, C* staged) {
  constexpr int kStep = kDepth<C>;
  const int row = static_cast<int>(threadIdx.x) / kLanes * kRows,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int k = 0; k < kOthers && k < others.there; k += kStep) {
    __syncthreads();
    Stage<kColumns, kStep, kColumns>(staged, others.from + k * others.row, columns,
                                     others.there - k, others.column, others.row);
    __syncthreads();
#pragma unroll 4
    for (int l = 0; l < kStep; ++l) {
      C a[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[r] = weights[row + r][k + l];
#pragma unroll
      for (int e = 0; e < kColumns / kLanes; ++e) {
        const C b = staged[l * kColumns + lane + e * kLanes];
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r][e] = Fma(a[r], b, sums[r][e]);
      }
    }
  }
}

}  // namespace opw::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_TILES_CUH_

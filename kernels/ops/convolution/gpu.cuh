// Convolution, its transpose and its gradients as products of tiles. One side is gathered when it
// is staged. For any float type, and all strides.
#include "kernels/ops/convolution/gpu_params.h"
#include "kernels/ops/matmul/gpu_tiles.cuh"

namespace opw::convolution {

using namespace matmul;

// The side of the convolution that is computed; it determines how elements are gathered.
enum Made { kX, kW, kY };

// A term or a column: its offset in the direct side, its offset in the gathered side, and its
// position along the gathered side's axes.
struct Place {
  i64 direct, gathered, at[3];
};
inline constexpr i64 kNowhere = -(static_cast<i64>(1) << 60);  // nor is the sum of two a position

OPW_DEVICE Place PlaceOf(const Axes<5, 4>& axes, i64 i, i64 count) {
  if (i >= count) return {0, 0, {kNowhere, 0, 0}};
  i64 of[5];
  OffsetsAt<true>(axes, i, of);
  return {of[0], of[1], {of[2], of[3], of[4]}};
}

// Returns the offset of an element of the gathered side, relative to its group; -1: outside, or
// between steps.
template <Made kMade>
OPW_DEVICE i64 Meets(const Params& p, const Place& term, const Place& column) {
  i64 offset = term.gathered + column.gathered;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    i64 at = p.start[a] + term.at[a] + column.at[a];
    if (at < 0) return -1;
    if (kMade == kX && p.step[a] != 1) {
      const i64 whole = at <= 0x7fffffff
                            ? static_cast<i64>(static_cast<u32>(at) / static_cast<u32>(p.step[a]))
                            : at / p.step[a];
      if (whole * p.step[a] != at) return -1;
      at = whole;
    }
    if (at >= p.extents[a]) return -1;
    offset += at * p.strides[a];
  }
  return offset;
}

// The initial value of element (row, column) of a group, before its products are added.
template <typename T>
OPW_DEVICE ComputeOf<T> Bias(const Params& p, i64 group, i64 row) {
  return p.bias != nullptr
             ? Load(static_cast<const T*>(p.bias)[(group * p.rows + row) * p.bias_row])
             : ComputeOf<T>(0);
}

// blockIdx.x: tiles of columns; y: tiles of rows, in a loop; z: chunks of terms of groups, in a
// loop. 256 threads.
template <typename T, Made kMade>
OPW_DEVICE void Products(const Params& p) {
  using S = ComputeOf<T>;
  __shared__ S of_direct[kDepth][kTile + 1];
  __shared__ S of_gathered[kDepth][kTile + 1];
  __shared__ Place terms[kDepth];
  __shared__ Place columns[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const i64 j0 = static_cast<i64>(blockIdx.x) * kTile;
  if (thread < kTile) columns[thread] = PlaceOf(p.of_columns, j0 + thread, p.columns);
  for (i64 z_block = blockIdx.z; z_block < p.groups * p.chunks; z_block += gridDim.z) {
    const i64 group = z_block / p.chunks, part = z_block % p.chunks, first = part * p.chunk;
    const i64 end = p.depth - first < p.chunk ? p.depth : first + p.chunk;
    const T* const gathered = static_cast<const T*>(p.gathered) + group * p.gathered_group;
    for (i64 i0 = static_cast<i64>(blockIdx.y) * kTile; i0 < p.rows;
         i0 += static_cast<i64>(gridDim.y) * kTile) {
      const T* const direct =
          static_cast<const T*>(p.direct) + group * p.direct_group + i0 * p.direct_row;
      S sum[kEach][kEach] = {};
      if (thread < kDepth) terms[thread] = PlaceOf(p.of_terms, first + thread, end);
      for (i64 l0 = first; l0 < end; l0 += kDepth) {
        __syncthreads();
        for (int e = thread; e < kTile * kDepth; e += kThreads) {
          const int l = e % kDepth, i = e / kDepth;
          of_direct[l][i] = i0 + i < p.rows && l0 + l < end
                                ? Load(direct[i * p.direct_row + terms[l].direct])
                                : S(0);
          // Neighbouring threads follow the positions of the tensors, which are terms of a weight's
          // gradient and columns otherwise.
          const int gl = kMade == kW ? l : e / kTile, j = kMade == kW ? i : e % kTile;
          const i64 met = Meets<kMade>(p, terms[gl], columns[j]);
          of_gathered[gl][j] = met >= 0 ? Load(gathered[met]) : S(0);
        }
        __syncthreads();
        if (thread < kDepth) terms[thread] = PlaceOf(p.of_terms, l0 + kDepth + thread, end);
        AddTileProducts(of_direct, of_gathered, sum);
      }
      if (p.depth == 0) __syncthreads();  // the columns have been written
      T* const z = static_cast<T*>(p.z) + group * p.z_group;
      for (int i = 0; i < kEach; ++i) {
        const i64 row = i0 + TileRow() + i;
        if (row >= p.rows) break;
        const S added = Bias<T>(p, group, row);
        const i64 at = ((part * p.groups + group) * p.rows + row) * p.columns + j0;  // in p.parts
        for (int j = 0; j < kEach; ++j) {
          const int column = TileColumn() + j;
          if (j0 + column >= p.columns) break;
          if (p.chunks > 1)
            static_cast<S*>(p.parts)[at + column] = sum[i][j];
          else
            z[row * p.z_row + columns[column].direct] = Store<T>(sum[i][j] + added);
        }
      }
    }
  }
}

// Adds the chunks' parts. blockIdx.x: 256 columns; y: rows of all groups, in a loop. 256 threads.
template <typename T>
OPW_DEVICE void AddParts(const Params& p) {
  using S = ComputeOf<T>;
  const i64 column = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  if (column >= p.columns) return;
  const i64 direct = PlaceOf(p.of_columns, column, p.columns).direct, all = p.groups * p.rows;
  for (i64 row = blockIdx.y; row < all; row += gridDim.y) {
    S sum(0);
    for (i64 part = 0; part < p.chunks; ++part)
      sum += static_cast<const S*>(p.parts)[(part * all + row) * p.columns + column];
    const i64 group = row / p.rows, own = row % p.rows;
    static_cast<T*>(p.z)[group * p.z_group + own * p.z_row + direct] =
        Store<T>(sum + Bias<T>(p, group, own));
  }
}

}  // namespace opw::convolution

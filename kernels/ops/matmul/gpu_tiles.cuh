// Products of tiles of 64 x 64 in shared memory, by 256 threads that each have 4 x 4 of the sums.
// Used by matrix products and convolutions.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_TILES_CUH_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_TILES_CUH_

#include "kernels/ops/gpu/rows.cuh"

namespace opw::matmul {

inline constexpr int kTile = 64, kDepth = 16, kThreads = 256, kEach = 4;

// The first of this thread's rows and columns of a tile.
OPW_DEVICE int TileRow() { return static_cast<int>(threadIdx.x) / 16 * kEach; }
OPW_DEVICE int TileColumn() { return static_cast<int>(threadIdx.x) % 16 * kEach; }

// Adds the products of this thread's rows of `xs` and columns of `ys` over the terms that are
// staged.
template <typename S>
OPW_DEVICE void AddTileProducts(const S (&xs)[kDepth][kTile + 1], const S (&ys)[kDepth][kTile + 1],
                                S (&sum)[kEach][kEach]) {
  const int row = TileRow(), column = TileColumn();
  for (int l = 0; l < kDepth; ++l) {
    S a[kEach], c[kEach];
    for (int e = 0; e < kEach; ++e) a[e] = xs[l][row + e], c[e] = ys[l][column + e];
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        if constexpr (kIsFloat<S>)
          sum[i][j] = Fma(a[i], c[j], sum[i][j]);
        else
          sum[i][j] += a[i] * c[j];
      }
    }
  }
}

}  // namespace opw::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_TILES_CUH_

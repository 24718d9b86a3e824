// Parameters of the matrix product's own kernels, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::matmul {

// z[b, i, j] = sum over l of x[b, i, l] * y[b, l, j]; strides in elements. `batch` walks x, y and
// z.
struct Params {
  const void* x;
  const void* y;
  void* z;
  const void* bias;         // of each column, or null
  const void* norm_weight;  // of Vectors that normalise x: of each term, or null
  double eps;               // of the same
  const float* scale_x;     // of Tiles: factors of rows' sums, or null; scale_m elements apart
  const float* scale_y;     // of each column, scale_n apart. Both or neither
  long long scale_m, scale_n;
  long long m, n, k;
  long long x_m, x_k, y_k, y_n, z_m, z_n, bias_n;
  long long batches;
  Axes<3, 16> batch;
  int adds;  // 1: adds to the values in z
  int reserved;
};

// y[i, j] = activation(x[i, j] + bias[j]) of dense matrices.
struct FinishParams {
  const void* x;
  void* y;
  const void* bias;  // or null
  long long elements, n, bias_n;
};

// z = activation(x y' + bias) of x [m, k], y [n, k] and z [m, n]; x in tiles of 128 rows, y of 64.
struct HopperParams {
  TileMap x, y;
  void* z;
  const void* bias;  // [n], or null
  long long m, n, k;
  long long z_m;  // elements from row to row
};

}  // namespace opw::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_

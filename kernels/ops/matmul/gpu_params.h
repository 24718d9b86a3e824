// Parameters of the matrix product's own kernels, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::matmul {

// z[b, i, j] = sum over l of x[b, i, l] * y[b, l, j]; strides in elements. `batch` walks x, y and z.
struct Params {
  const void* x;
  const void* y;
  void* z;
  const void* bias;         // of each column, or null
  const void* norm_weight;  // of Vectors that normalise x: of each term, or null
  double eps;               // of the same
  long long m, n, k;
  long long x_m, x_k, y_k, y_n, z_m, z_n, bias_n;
  long long batches;
  Axes<3, 16> batch;
  int adds;  // to what z holds
  int reserved;
};

// y[i, j] = activation(x[i, j] + bias[j]) of dense matrices.
struct FinishParams {
  const void* x;
  void* y;
  const void* bias;  // or null
  long long elements, n, bias_n;
};

}  // namespace opw::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_PARAMS_H_

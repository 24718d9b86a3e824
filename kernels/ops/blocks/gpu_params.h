// Parameters of the ops on GGUF's blocks on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::blocks {

inline constexpr int kRows = 4;  // of x that a warp multiplies with a row of weights at one time

struct LinearParams {
  const void* x;       // [m, k]
  const void* weight;  // [n, k], encoded
  const void* bias;    // [n], or null
  void* y;             // [m, n]
  long long m, n, k;
};

// y's rows of k elements are the rows of x [extent, k], encoded, that index names, or all of them
// if index is null.
struct FloatsParams {
  const void* x;
  const void* index;
  void* y;
  long long count, extent, k;
  Reporter reporter;
};

}  // namespace opw::blocks

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_GPU_PARAMS_H_

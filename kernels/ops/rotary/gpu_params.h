// Parameters of the rotary kernel on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_ROTARY_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_ROTARY_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::rotary {

// x and y dense, in rows of `depth` elements.
struct Params {
  const void* x;
  void* y;
  const void* positions;    // null: they count along S
  const void* frequencies;  // of each pair, in the computing type
  double scale;
  long long depth, rotated;  // elements of a row, and of them
  long long angles, copies;  // rows that do not share a position, and rows that share each
  long long each;            // of the copies, for a block along y but the last
  Axes<2, 16>
      own;  // the axes along which positions vary: of rows of x, in elements, and of positions
  Axes<1, 16> shared;  // the others: of rows of x
};

}  // namespace opw::rotary

#endif  // OPWIRE_KERNELS_OPS_ROTARY_GPU_PARAMS_H_

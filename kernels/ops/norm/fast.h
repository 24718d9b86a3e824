// Rows of layer_norm and rms_norm, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_NORM_FAST_H_
#define OPWIRE_KERNELS_OPS_NORM_FAST_H_

#include <stdint.h>

namespace opwire::ops {

// y = normalised x of n contiguous elements, times weight plus bias where they are not null; y may be x. REQUIRES: n > 0.
using NormRow = void (*)(void* y, const void* x, const void* weight, const void* bias, int64_t n, double eps);
struct NormRows {
  NormRow layer[16];  // by element type; null: none
  NormRow rms[16];
};

const NormRows& NormRowsAvx2();
const NormRows& NormRowsAvx512();

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_NORM_FAST_H_

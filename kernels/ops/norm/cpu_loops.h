// Rows of layer_norm, rms_norm and their gradients, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_NORM_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_NORM_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::norm {

// y = normalised x of n contiguous elements, times weight plus bias where they are not null; y may
// be x. REQUIRES: n > 0.
using NormRow = void (*)(void* y, const void* x, const void* weight, const void* bias, int64_t n,
                         double eps);
// sum = x + residual of n contiguous elements.
using SumRow = void (*)(void* sum, const void* x, const void* residual, int64_t n);
// grad_x of a row, from x and the gradient of its y. The row's parts of the gradients of weight,
// and of bias with layer_norm, are added to sums in the computing type. weight may be null: 1; so
// may residual, which is added to grad_x.
using NormBackwardRow = void (*)(void* grad_x, void* weight_sums, void* bias_sums, const void* grad,
                                 const void* x, const void* weight, const void* residual, int64_t n,
                                 double eps);
// to[i] = the sum over parts p of sums[p * stride + i], which are in the computing type, for n
// elements. REQUIRES: parts > 0.
using ReduceRow = void (*)(void* to, const void* sums, int64_t parts, int64_t stride, int64_t n);
struct NormRows {
  NormRow layer[16];  // by element type; null: none
  NormRow rms[16];
  SumRow sum[16];
  NormBackwardRow layer_backward[16];
  NormBackwardRow rms_backward[16];
  ReduceRow reduction[16];
};

const NormRows& NormRowsAvx2();
const NormRows& NormRowsAvx512();

}  // namespace opwire::ops::norm

#endif  // OPWIRE_KERNELS_OPS_NORM_CPU_LOOPS_H_

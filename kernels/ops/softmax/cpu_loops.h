// Rows of softmax, log_softmax and their gradients, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SOFTMAX_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_SOFTMAX_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::softmax {

// y = softmax(x) or its logarithm, of n contiguous elements; y may be x. REQUIRES: n > 0.
using SoftmaxRow = void (*)(void* y, const void* x, int64_t n);
// log(sum(exp(x))) of n contiguous elements, and exp(x - that) * scale.
using LogSumExpRow = double (*)(const void* x, int64_t n);
using ExpRow = void (*)(void* y, const void* x, int64_t n, double log_sum, double scale);
// The same for `rows` contiguous short rows of n elements each. They process several rows at once,
// as the reduction of a short row costs more than its elements. y may be x. REQUIRES: n <=
// kSoftmaxShortRow.
inline constexpr int64_t kSoftmaxShortRow = 32;
using ShortSoftmaxRows = void (*)(void* y, const void* x, int64_t rows, int64_t n);
using ShortLogSumExpRows = void (*)(double* log_sums, const void* x, int64_t rows, int64_t n);
using ShortExpRows = void (*)(void* y, const void* x, int64_t rows, int64_t n,
                              const double* log_sums, const double* scales);
// Softmax or its logarithm along each of some columns: element r of column j is x[r * stride + j].
using SoftmaxColumn = void (*)(void* y, const void* x, int64_t n, int64_t columns, int64_t stride);
// The gradient by x of n contiguous elements, from that of y and y: y * (grad - sum(grad * y)), or
// of log_softmax grad - exp(y) * sum(grad). grad_x may be grad or y.
using SoftmaxBackwardRow = void (*)(void* grad_x, const void* grad, const void* y, int64_t n);
// The same along each of some columns. REQUIRES: columns <= kSoftmaxColumns.
using SoftmaxBackwardColumns = void (*)(void* grad_x, const void* grad, const void* y, int64_t n,
                                        int64_t columns, int64_t stride);
inline constexpr int64_t kSoftmaxColumns = 64;
struct SoftmaxRows {
  SoftmaxRow softmax[16];  // by element type; null: not available
  SoftmaxRow log_softmax[16];
  SoftmaxColumn softmax_columns[16];
  SoftmaxColumn log_softmax_columns[16];
  SoftmaxBackwardRow softmax_backward[16];
  SoftmaxBackwardRow log_softmax_backward[16];
  SoftmaxBackwardColumns softmax_backward_columns[16];
  SoftmaxBackwardColumns log_softmax_backward_columns[16];
  LogSumExpRow log_sum_exp[16];
  ExpRow exp[16];
  ShortSoftmaxRows short_softmax[16];
  ShortSoftmaxRows short_log_softmax[16];
  ShortLogSumExpRows short_log_sum_exp[16];
  ShortExpRows short_exp[16];
};

const SoftmaxRows& SoftmaxRowsAvx2();
const SoftmaxRows& SoftmaxRowsAvx512();

}  // namespace opwire::ops::softmax

#endif  // OPWIRE_KERNELS_OPS_SOFTMAX_CPU_LOOPS_H_

// Parameters of the loss kernels on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_

#include "kernels/device/gpu/flags.h"

namespace opw::loss {

// Losses added up, and how many targets are not ignored.
struct Total {
  double loss;
  long long count;
};

struct RowsParams {
  const void* logits;  // [rows, classes], rows `pitch` apart
  const void* target;  // [rows], i32 or i64
  const void* grad;    // of the backward kernel: one, or with each_grad [rows]
  void* out;           // losses, or the gradient
  Total* totals;   // of each row where losses are added up; of all rows where a gradient is divided
                   // by their number; else null
  void* log_sums;  // of each row: written with the losses where not null, read by RoundedGradients
  void*
      losses;  // of each row, where a gradient is to give them, too: elements as `logits` has them,
  Total* each_total;  // or what is added up; else both null
  long long rows, classes, pitch, ignore;
  long long first;  // the call's row that is the first here, for reports
  int operand;      // of the targets, for reports
  int each_grad;    // 0: one for all rows
  Reporter reporter;
};

struct TotalsParams {
  const Total* totals;  // [count], or null: to be counted from the targets
  const void* target;
  void* out;  // a Total for each block; of the last kernel the loss
  long long count, ignore;
  int mean;  // of the last kernel: the loss is the mean
  int reserved;
};

}  // namespace opw::loss

#endif  // OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_

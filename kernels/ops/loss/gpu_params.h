// Parameters of the loss kernels on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_

#include "kernels/device/gpu/flags.h"

namespace opw::loss {

// A sum of losses, and the number of targets that are not ignored.
struct Total {
  double loss;
  long long count;
};

struct RowsParams {
  const void* logits;  // [rows, classes], with `pitch` elements between rows
  const void* target;  // [rows], i32 or i64
  const void* grad;    // of the backward kernel: one, or with each_grad [rows]
  void* out;           // losses, or the gradient
  Total* totals;   // of each row if losses are added; of all rows if a gradient is divided by their
                   // number; else null
  void* log_sums;  // of each row: if not null, written with the losses; read by RoundedGradients
  void* losses;    // of each row, if a gradient also writes them: elements of the type of `logits`,
  Total* each_total;  // or totals to be added; null: not used
  long long rows, classes, pitch, ignore;
  long long first;  // the call's row that is the first one here, for reports
  int operand;      // of the targets, for reports
  int each_grad;    // 0: one for all rows
  Reporter reporter;
};

struct TotalsParams {
  const Total* totals;  // [count], or null: to be counted from the targets
  const void* target;
  void* out;  // a Total for each block; for the last kernel the loss
  long long count, ignore;
  int mean;  // for the last kernel: the loss is the mean
  int reserved;
};

}  // namespace opw::loss

#endif  // OPWIRE_KERNELS_OPS_LOSS_GPU_PARAMS_H_

// The parts of the loss family.
#ifndef OPWIRE_KERNELS_OPS_LOSS_LOSS_H_
#define OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

#include "kernels/ops/softmax/cpu_loops.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::loss {

void AddLossReference(VariantTable& table);
void AddLinearLossReference(VariantTable& table);
// "avx512" and "avx2".
void AddLossFast(VariantTable& table, const Isa& isa);
// "onednn".
void AddLinearLoss(VariantTable& table, const Isa& isa);

// Dense rows of logits. The first is row `first` of the call's rows.
struct LogitRows {
  const softmax::SoftmaxRows& loops;
  DType type;
  void* logits;  // [rows, classes]
  int64_t first, rows, classes;
  int target;  // the operand that has the targets
};
// Writes losses of these rows into the losses of all rows of the call. If `log_sums` is not null it
// has the logits' type, and receives the logarithm of each row's sum.
void LossesOf(const opw_call* c, const LogitRows& l, double* losses, const opw_tensor* log_sums);
// Writes result 0 from all losses.
void StoreLosses(const opw_call* c, const double* losses, int64_t rows, int target);
// Writes the gradients of the rows' logits to `to`, which has their type and may share their
// memory. The gradient of the loss, operand 0, is divided by `count`. `log_sums` has the values of
// LossesOf, or is null. If `losses` is not null, these rows' losses are written there, too.
void GradientsOf(const opw_call* c, const LogitRows& l, double count, const opw_tensor* log_sums,
                 void* to, double* losses = nullptr);

}  // namespace opwire::ops::loss

#endif  // OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

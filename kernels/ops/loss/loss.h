// The parts of the loss family.
#ifndef OPWIRE_KERNELS_OPS_LOSS_LOSS_H_
#define OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

#include "kernels/ops/softmax/fast.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops {

void AddLossReference(VariantTable& table);
void AddLinearLossReference(VariantTable& table);
// "avx512" and "avx2".
void AddLossFast(VariantTable& table, const Isa& isa);
// "onednn".
void AddLinearLoss(VariantTable& table, const Isa& isa);

// Dense rows of logits, of which the first is row `first` of the call's.
struct LogitRows {
  const SoftmaxRows& loops;
  DType type;
  void* logits;  // [rows, classes]
  int64_t first, rows, classes;
  int target;  // the operand that has the targets
};
// Losses of these rows among those of all rows of the call; where `log_sums` is not null, which has
// the logits' type, each row's logarithm of its sum too.
void LossesOf(const opw_call* c, const LogitRows& l, double* losses, const opw_tensor* log_sums);
// Result 0, of all losses.
void StoreLosses(const opw_call* c, const double* losses, int64_t rows, int target);
// The gradients of the rows' logits, of which `to` has the type and which may take their place. The
// loss's, operand 0, is divided by `count`; `log_sums` has what LossesOf gave, or is null. Where
// `losses` is not null, these rows' losses go there, too.
void GradientsOf(const opw_call* c, const LogitRows& l, double count, const opw_tensor* log_sums,
                 void* to, double* losses = nullptr);

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

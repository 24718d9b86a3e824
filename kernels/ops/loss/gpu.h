// Steps of losses on GPUs, for the ops of the family.
#ifndef OPWIRE_KERNELS_OPS_LOSS_GPU_H_
#define OPWIRE_KERNELS_OPS_LOSS_GPU_H_

#include <optional>

#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/loss/gpu_params.h"
#include "kernels/ops/loss/target.h"

namespace opwire::gpu::loss {

// Rows of logits. The first is row `first` of the call's rows. `target` is the operand with the
// targets of all of the call's rows.
struct LogitRows {
  DType type;
  Source logits;
  int64_t rows, classes, pitch, first = 0;
  int target;
};
inline opw::loss::RowsParams ParamsOf(const Call& call, const LogitRows& l) {
  opw::loss::RowsParams p{};
  p.rows = l.rows, p.classes = l.classes, p.pitch = l.pitch, p.first = l.first;
  p.ignore = call.attr(1).value.i;
  p.operand = l.target;
  return p;
}
Source TargetsOf(const Call& call, const LogitRows& l);
// Plans each row's loss: to result 0, or with a reduction to the totals of all rows in the
// workspace. `log_sums` receives the logarithms of the rows' sums.
Status PlanLosses(const Call& call, const LogitRows& l, int64_t totals,
                  std::optional<Source> log_sums, Plan& plan);
// Takes memory for the totals of `rows` rows.
int64_t TakeTotals(int64_t rows, Plan& plan);
// Writes result 0 from the totals of all rows. Adds no launch without a reduction.
Status PlanTotal(const Call& call, int64_t rows, int64_t totals, Plan& plan);
// Counts the targets that are not ignored, into one Total in the workspace.
Status PlanCount(const Call& call, Plan& plan, int64_t rows, int target, int64_t* at);

void AddLinearLossGpu(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu::loss

#endif  // OPWIRE_KERNELS_OPS_LOSS_GPU_H_

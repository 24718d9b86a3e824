// cross_entropy and its gradient on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/rows.h"
#include "kernels/ops/loss/gpu_params.h"
#include "kernels/ops/loss/target.h"

namespace opwire::gpu {
namespace {

using ops::Reduction;

constexpr std::string_view kFile = "kernels/ops/loss/gpu.cuh", kParams = "loss::RowsParams", kTotalsParams = "loss::TotalsParams";
constexpr int kThreads = 256;
constexpr int64_t kTotalBytes = sizeof(opw::loss::Total);

// Rows of one reading: in how many lanes, so that each has several vectors.
int LanesFor(int64_t classes, int64_t bytes_each) {
  const int64_t vectors = classes * bytes_each / 16;
  return vectors <= 64 ? 8 : vectors <= 512 ? 32 : 0;
}
int64_t TotalBlocks(int64_t rows) { return std::min<int64_t>(BlocksFor(rows, kThreads, 4), 256); }

Status PlanLoss(const Call& call, Plan& plan) {
  const opw_tensor& logits = call.operand(0);
  const Reduction reduction = ops::ReductionOf(call.c);
  const bool total = reduction != Reduction::kNone;
  const std::string_view type = CodeName(ops::TypeOf(logits)), index = CodeName(ops::TypeOf(call.operand(1)));
  opw::loss::RowsParams p{};
  p.rows = logits.shape[0];
  p.classes = logits.shape[1];
  p.ignore = call.attr(1).value.i;
  p.operand = 1;
  if (p.rows > 0) {
    const int lanes = LanesFor(p.classes, DTypeBytes(ops::TypeOf(logits)));
    const std::string body = fmt::format("loss::Losses<{}, {}, {}, {}>", type, index, total, lanes);
    OPWIRE_ASSIGN_OR_RETURN(const Function losses, call.code.Get({kFile, body, std::string(kParams), kThreads}));
    const int64_t blocks = lanes == 0 ? p.rows : BlocksFor(p.rows, kThreads / lanes);
    const Grid grid{.blocks = std::min<int64_t>(blocks, INT32_MAX), .threads = kThreads};
    const Field to = total ? Field{&p.totals, Workspace(plan.TakeWorkspace(p.rows * kTotalBytes))} : Field{&p.out, Result(0)};
    plan.Launch(losses, grid, p, {{&p.logits, Operand(0)}, {&p.target, Operand(1)}, to, {&p.reporter, Reports()}});
  }
  if (!total) return absl::OkStatus();
  opw::loss::TotalsParams t{};
  t.mean = reduction == Reduction::kMean;
  t.count = p.rows;
  int64_t at = 0;
  if (const int64_t blocks = TotalBlocks(p.rows); blocks > 1) {
    at = plan.TakeWorkspace(blocks * kTotalBytes);
    OPWIRE_ASSIGN_OR_RETURN(const Function fold, call.code.Get({kFile, "loss::FoldTotals<i64>", std::string(kTotalsParams), kThreads}));
    plan.Launch(fold, {.blocks = blocks, .threads = kThreads}, t, {{&t.totals, Workspace(0)}, {&t.out, Workspace(at)}});
    t.count = blocks;
  }
  OPWIRE_ASSIGN_OR_RETURN(const Function finish, call.code.Get({kFile, fmt::format("loss::FinishTotals<{}>", type), std::string(kTotalsParams), kThreads}));
  plan.Launch(finish, {.threads = kThreads}, t, {{&t.totals, Workspace(at)}, {&t.out, Result(0)}});
  return absl::OkStatus();
}

// Counts the targets that are not ignored, into one Total in the workspace.
Status PlanCount(const Call& call, Plan& plan, int64_t rows, std::string_view index, int64_t* at) {
  opw::loss::TotalsParams t{};
  t.ignore = call.attr(1).value.i;
  t.count = rows;
  const int64_t blocks = TotalBlocks(rows);
  OPWIRE_ASSIGN_OR_RETURN(const Function fold, call.code.Get({kFile, fmt::format("loss::FoldTotals<{}>", index), std::string(kTotalsParams), kThreads}));
  *at = plan.TakeWorkspace(blocks * kTotalBytes);
  plan.Launch(fold, {.blocks = blocks, .threads = kThreads}, t, {{&t.target, Operand(2)}, {&t.out, Workspace(*at)}});
  if (blocks == 1) return absl::OkStatus();
  t.count = blocks;
  const int64_t parts = *at;
  *at = plan.TakeWorkspace(kTotalBytes);
  plan.Launch(fold, {.threads = kThreads}, t, {{&t.totals, Workspace(parts)}, {&t.out, Workspace(*at)}});
  return absl::OkStatus();
}

Status PlanGradient(const Call& call, Plan& plan) {
  const opw_tensor& logits = call.operand(1);
  const std::string_view type = CodeName(ops::TypeOf(logits)), index = CodeName(ops::TypeOf(call.operand(2)));
  const int64_t bytes_each = DTypeBytes(ops::TypeOf(logits));
  opw::loss::RowsParams p{};
  p.rows = logits.shape[0];
  p.classes = logits.shape[1];
  p.ignore = call.attr(1).value.i;
  p.operand = 2;
  p.each_grad = call.operand(0).rank != 0;
  std::vector<Field> fields = {{&p.grad, Operand(0)}, {&p.logits, Operand(1)}, {&p.target, Operand(2)}, {&p.out, Result(0)}, {&p.reporter, Reports()}};
  if (ops::ReductionOf(call.c) == Reduction::kMean) {
    int64_t at = 0;
    OPWIRE_RETURN_IF_ERROR(PlanCount(call, plan, p.rows, index, &at));
    fields.push_back({&p.totals, Workspace(at)});
  }
  const OnChipForm form = OnChipFormOf(p.classes, bytes_each);
  if (form.vectors > 0) {
    const std::string body = fmt::format("loss::Gradients<{}, {}, {}, {}>", type, index, form.lanes, form.vectors);
    OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({kFile, body, std::string(kParams), ThreadLimit(form), BlockTarget(form, bytes_each)}));
    plan.LaunchBytes(f, {.blocks = BlocksOf(form, p.rows), .threads = form.threads}, &p, sizeof p, fields);
    return absl::OkStatus();
  }
  const std::string body = fmt::format("loss::StreamedGradients<{}, {}>", type, index);
  OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({kFile, body, std::string(kParams), kStreamedThreads, 1}));
  const StreamedForm streamed = StreamedFormOf(p.rows, p.classes, bytes_each, call.multiprocessors());
  plan.LaunchBytes(f, {.blocks = streamed.blocks, .threads = streamed.threads}, &p, sizeof p, fields);
  return absl::OkStatus();
}

}  // namespace

void AddLossGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "cross_entropy", {.flags = flags, .plan = PlanLoss});
  AddGpu(table, code, "cross_entropy_backward", {.flags = flags, .plan = PlanGradient});
}

}  // namespace opwire::gpu

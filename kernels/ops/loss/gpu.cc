// cross_entropy and its gradient on GPUs: which form a call takes.
#include "kernels/ops/loss/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/row_launch.h"

namespace opwire::gpu::loss {
namespace {

using ops::loss::Reduction;

constexpr std::string_view kFile = "kernels/ops/loss/gpu.cuh", kParams = "loss::RowsParams",
                           kTotalsParams = "loss::TotalsParams";
constexpr int kThreads = 256;
constexpr int64_t kTotalBytes = sizeof(opw::loss::Total);

// Rows of one reading: in how many lanes, so that each has several vectors.
int LanesFor(int64_t classes, int64_t bytes_each) {
  const int64_t vectors = classes * bytes_each / 16;
  return vectors <= 64 ? 8 : vectors <= 512 ? 32 : 0;
}
int64_t TotalBlocks(int64_t rows) { return std::min<int64_t>(BlocksFor(rows, kThreads, 4), 256); }

LogitRows AllRows(const Call& call, int logits) {
  const opw_tensor& t = call.operand(logits);
  return {.type = ops::TypeOf(t),
          .logits = Operand(call.c->starts[logits]),
          .rows = t.shape[0],
          .classes = t.shape[1],
          .pitch = t.shape[1],
          .target = logits + 1};
}

Status PlanLoss(const Call& call, Plan& plan) {
  const LogitRows all = AllRows(call, 0);
  const int64_t totals = TakeTotals(all.rows, plan);
  OPWIRE_RETURN_IF_ERROR(PlanLosses(call, all, totals, std::nullopt, plan));
  return PlanTotal(call, all.rows, totals, plan);
}

// Of the logits; with each row's loss, which then are result 0, the gradient result 1.
Status PlanGradients(const Call& call, bool with_losses, Plan& plan) {
  const LogitRows all = AllRows(call, 1);
  const std::string_view type = CodeName(all.type), index = CodeName(ops::TypeOf(call.operand(2)));
  const int64_t bytes_each = DTypeBytes(all.type);
  opw::loss::RowsParams p = ParamsOf(call, all);
  p.each_grad = call.operand(0).rank != 0;
  std::vector<Field> fields = {{&p.grad, Operand(0)},
                               {&p.logits, Operand(1)},
                               {&p.target, Operand(2)},
                               {&p.out, Result(with_losses ? 1 : 0)},
                               {&p.reporter, Reports()}};
  int64_t totals = 0;
  if (with_losses && ops::loss::ReductionOf(call.c) == Reduction::kNone) {
    fields.push_back({&p.losses, Result(0)});
  } else if (with_losses) {
    totals = TakeTotals(all.rows, plan);
    fields.push_back({&p.each_total, Workspace(totals)});
  }
  const auto finish = [&] {
    return with_losses ? PlanTotal(call, p.rows, totals, plan) : absl::OkStatus();
  };
  if (p.rows == 0) return finish();
  if (ops::loss::ReductionOf(call.c) == Reduction::kMean) {
    int64_t at = 0;
    OPWIRE_RETURN_IF_ERROR(PlanCount(call, plan, p.rows, 2, &at));
    fields.push_back({&p.totals, Workspace(at)});
  }
  if (const HeldForm form = HeldFormOf(call, p.rows, p.classes, bytes_each, 4); form.threads > 0) {
    const std::string body =
        fmt::format("loss::HeldGradients<{}, {}, {}, {}, {}>", type, index, form.lanes,
                    form.vectors, form.vectors > 0 ? form.threads : 0);
    Kernel* const f = call.code.Get({kFile, body, std::string(kParams), form.threads,
                                     HeldTarget(form, 40, bytes_each), form.cluster()});
    plan.LaunchBytes(
        f, {.blocks = BlocksOf(form, p.rows), .threads = form.threads, .shared = form.shared}, &p,
        sizeof p, fields);
    return finish();
  }
  const OnChipForm form = OnChipFormOf(p.classes, bytes_each);
  if (form.vectors > 0) {
    const std::string body =
        fmt::format("loss::Gradients<{}, {}, {}, {}>", type, index, form.lanes, form.vectors);
    Kernel* const f = call.code.Get(
        {kFile, body, std::string(kParams), ThreadLimit(form), BlockTarget(form, bytes_each)});
    plan.LaunchBytes(f, {.blocks = BlocksOf(form, p.rows), .threads = form.threads}, &p, sizeof p,
                     fields);
    return finish();
  }
  const std::string body = fmt::format("loss::StreamedGradients<{}, {}>", type, index);
  Kernel* const f = call.code.Get({kFile, body, std::string(kParams), kStreamedThreads, 1});
  const StreamedForm streamed =
      StreamedFormOf(p.rows, p.classes, bytes_each, call.multiprocessors());
  plan.LaunchBytes(f, {.blocks = streamed.blocks, .threads = streamed.threads}, &p, sizeof p,
                   fields);
  return finish();
}
Status PlanGradient(const Call& call, Plan& plan) {
  return PlanGradients(call, /*with_losses=*/false, plan);
}
Status PlanWithGradient(const Call& call, Plan& plan) {
  return PlanGradients(call, /*with_losses=*/true, plan);
}

}  // namespace

Source TargetsOf(const Call& call, const LogitRows& l) {
  return Operand(call.c->starts[l.target],
                 l.first * DTypeBytes(ops::TypeOf(call.operand(l.target))));
}

int64_t TakeTotals(int64_t rows, Plan& plan) { return plan.TakeWorkspace(rows * kTotalBytes); }

Status PlanLosses(const Call& call, const LogitRows& l, int64_t totals,
                  std::optional<Source> log_sums, Plan& plan) {
  if (l.rows == 0) return absl::OkStatus();
  const bool total = ops::loss::ReductionOf(call.c) != Reduction::kNone;
  const DType result = ops::TypeOf(call.result());
  const int lanes = LanesFor(l.classes, DTypeBytes(l.type));
  const std::string body =
      fmt::format("loss::Losses<{}, {}, {}, {}, {}>", CodeName(l.type), CodeName(result),
                  CodeName(ops::TypeOf(call.operand(l.target))), total, lanes);
  const int resident = l.type == DType::kF64
                           ? 2
                           : 0;  // 128 registers: without a bound compilers spill to have fewer
  Kernel* const losses = call.code.Get({kFile, body, std::string(kParams), kThreads, resident});
  const opw::loss::RowsParams p = ParamsOf(call, l);
  const int64_t blocks = lanes == 0 ? p.rows : BlocksFor(p.rows, kThreads / lanes);
  const Field to = total ? Field{&p.totals, Workspace(totals + l.first * kTotalBytes)}
                         : Field{&p.out, Result(0, l.first * DTypeBytes(result))};
  std::vector<Field> fields = {
      {&p.logits, l.logits}, {&p.target, TargetsOf(call, l)}, to, {&p.reporter, Reports()}};
  if (log_sums) fields.push_back({&p.log_sums, *log_sums});
  plan.LaunchBytes(losses, {.blocks = std::min<int64_t>(blocks, INT32_MAX), .threads = kThreads},
                   &p, sizeof p, fields);
  return absl::OkStatus();
}

Status PlanTotal(const Call& call, int64_t rows, int64_t totals, Plan& plan) {
  const Reduction reduction = ops::loss::ReductionOf(call.c);
  if (reduction == Reduction::kNone) return absl::OkStatus();
  opw::loss::TotalsParams t{};
  t.mean = reduction == Reduction::kMean;
  t.count = rows;
  int64_t at = totals;
  if (const int64_t blocks = TotalBlocks(rows); blocks > 1) {
    at = plan.TakeWorkspace(blocks * kTotalBytes);
    Kernel* const reduction =
        call.code.Get({kFile, "loss::ReduceTotals<i64>", std::string(kTotalsParams), kThreads});
    plan.Launch(reduction, {.blocks = blocks, .threads = kThreads}, t,
                {{&t.totals, Workspace(totals)}, {&t.out, Workspace(at)}});
    t.count = blocks;
  }
  const std::string body =
      fmt::format("loss::FinishTotals<{}>", CodeName(ops::TypeOf(call.result())));
  Kernel* const finish = call.code.Get({kFile, body, std::string(kTotalsParams), kThreads});
  plan.Launch(finish, {.threads = kThreads}, t, {{&t.totals, Workspace(at)}, {&t.out, Result(0)}});
  return absl::OkStatus();
}

Status PlanCount(const Call& call, Plan& plan, int64_t rows, int target, int64_t* at) {
  opw::loss::TotalsParams t{};
  t.ignore = call.attr(1).value.i;
  t.count = rows;
  const int64_t blocks = TotalBlocks(rows);
  const std::string body =
      fmt::format("loss::ReduceTotals<{}>", CodeName(ops::TypeOf(call.operand(target))));
  Kernel* const reduction = call.code.Get({kFile, body, std::string(kTotalsParams), kThreads});
  *at = plan.TakeWorkspace(blocks * kTotalBytes);
  plan.Launch(reduction, {.blocks = blocks, .threads = kThreads}, t,
              {{&t.target, Operand(call.c->starts[target])}, {&t.out, Workspace(*at)}});
  if (blocks == 1) return absl::OkStatus();
  t.count = blocks;
  const int64_t parts = *at;
  *at = plan.TakeWorkspace(kTotalBytes);
  plan.Launch(reduction, {.threads = kThreads}, t,
              {{&t.totals, Workspace(parts)}, {&t.out, Workspace(*at)}});
  return absl::OkStatus();
}

void AddLossGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "cross_entropy", {.flags = flags, .plan = PlanLoss});
  AddGpu(table, code, "cross_entropy_backward", {.flags = flags, .plan = PlanGradient});
  AddGpu(table, code, "cross_entropy_with_gradient", {.flags = flags, .plan = PlanWithGradient});
  AddLinearLossGpu(table, code);
}

}  // namespace opwire::gpu::loss

// softmax_backward and log_softmax_backward on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/row_launch.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/softmax/gpu_backward_params.h"

namespace opwire::gpu::softmax {
namespace {

template <bool kLog>
Status PlanSoftmaxBackward(const Call& call, Plan& plan) {
  const opw_tensor& y = call.operand(1);
  const int dim = ops::Axis(call.attr(0).value.i, y.rank);
  const int64_t bytes_each = DTypeBytes(ops::TypeOf(y));
  const std::string which = fmt::format("{}, {}", CodeName(ops::TypeOf(y)), kLog);
  opw::softmax::BackwardParams p{};
  p.extent = y.shape[dim];
  p.rows = y.elements / p.extent;
  p.inner = ops::ElementsFrom(y, dim + 1);
  const auto launch = [&](const std::string& body, int bound, int resident, const Grid& grid,
                          int cluster = 1) -> Status {
    Kernel* const f = call.code.Get({"kernels/ops/softmax/gpu_backward.cuh", body,
                                     "softmax::BackwardParams", bound, resident, cluster});
    std::vector<Field> fields = {{&p.grad, Operand(0)}, {&p.y, Operand(1)}, {&p.grad_x, Result(0)}};
    if (p.chunks > 1) fields.push_back({&p.partials, Workspace()});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    return absl::OkStatus();
  };
  if (p.inner > 1) {
    return launch(fmt::format("softmax::BackwardColumns<{}>", which), 1024, 1,
                  ColumnGrid(p.rows, p.extent, call.multiprocessors()));
  }
  // grad and y are held: twice the registers of a row.
  if (const OnChipForm form = OnChipFormOf(call, p.rows, p.extent, bytes_each); form.vectors > 0) {
    return launch(fmt::format("softmax::BackwardRows<{}, {}, {}>", which, form.lanes, form.vectors),
                  ThreadLimit(form), std::max(1, BlockTarget(form, bytes_each) / 2),
                  {.blocks = BlocksOf(form, p.rows), .threads = form.threads}, form.cluster());
  }
  const StreamedForm form =
      StreamedFormOf(p.rows, p.extent, 2 * bytes_each, call.multiprocessors());
  if (form.chunks == 1) {
    return launch(fmt::format("softmax::BackwardStreamed<{}>", which), kStreamedThreads, 1,
                  {.blocks = form.blocks, .threads = form.threads});
  }
  p.chunks = form.chunks;
  p.chunk = form.chunk;
  plan.TakeWorkspace(p.rows * p.chunks * std::max<int64_t>(4, bytes_each));
  const Grid grid{.blocks = p.rows, .threads = form.threads, .blocks_y = p.chunks};
  OPWIRE_RETURN_IF_ERROR(
      launch(fmt::format("softmax::BackwardReduceChunks<{}>", which), kStreamedThreads, 1, grid));
  return launch(fmt::format("softmax::BackwardWriteChunks<{}>", which), kStreamedThreads, 1, grid);
}

}  // namespace

void AddSoftmaxBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "softmax_backward", {.flags = flags, .plan = PlanSoftmaxBackward<false>});
  AddGpu(table, code, "log_softmax_backward", {.flags = flags, .plan = PlanSoftmaxBackward<true>});
}

}  // namespace opwire::gpu::softmax

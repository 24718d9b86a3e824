// softmax and log_softmax on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/row_launch.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/softmax/gpu_params.h"

namespace opwire::gpu::softmax {
namespace {

constexpr std::string_view kFile = "kernels/ops/softmax/gpu.cuh", kParams = "softmax::RowsParams";

template <bool kLog>
Status PlanRows(const Call& call, Plan& plan) {
  const opw_tensor& x = call.operand(0);
  const int dim = ops::Axis(call.attr(0).value.i, x.rank);
  const int64_t bytes_each = DTypeBytes(ops::TypeOf(x));
  const std::string_view type = CodeName(ops::TypeOf(x));
  opw::softmax::RowsParams p{};
  p.extent = x.shape[dim];
  p.rows = x.elements / p.extent;
  p.inner = ops::ElementsFrom(x, dim + 1);
  const auto launch = [&](const std::string& body, int bound, int resident, const Grid& grid,
                          int cluster = 1) -> Status {
    Kernel* const f = call.code.Get({kFile, body, std::string(kParams), bound, resident, cluster});
    if (p.chunks > 1)
      plan.Launch(f, grid, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}, {&p.partials, Workspace()}});
    else
      plan.Launch(f, grid, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}});
    return absl::OkStatus();
  };
  if (p.inner > 1) {
    return launch(fmt::format("softmax::Columns<{}, {}>", type, kLog), 1024, 1,
                  ColumnGrid(p.rows, p.extent, call.multiprocessors()));
  }
  if (const HeldForm form = HeldFormOf(call, p.rows, p.extent, bytes_each, 4); form.threads > 0) {
    const int threads = form.vectors > 0 ? form.threads : 0;  // as the kernel knows them
    return launch(
        fmt::format("softmax::HeldRows<{}, {}, {}, {}, {}>", type, kLog, form.lanes, form.vectors,
                    threads),
        form.threads, HeldTarget(form, 40, bytes_each),
        {.blocks = BlocksOf(form, p.rows), .threads = form.threads, .shared = form.shared},
        form.cluster());
  }
  if (const OnChipForm form = OnChipFormOf(p.extent, bytes_each); form.vectors > 0) {
    return launch(
        fmt::format("softmax::Rows<{}, {}, {}, {}>", type, kLog, form.lanes, form.vectors),
        ThreadLimit(form), BlockTarget(form, bytes_each),
        {.blocks = BlocksOf(form, p.rows), .threads = form.threads});
  }
  const StreamedForm form = StreamedFormOf(p.rows, p.extent, bytes_each, call.multiprocessors());
  if (form.chunks == 1) {
    return launch(fmt::format("softmax::StreamedRows<{}, {}>", type, kLog), kStreamedThreads, 1,
                  {.blocks = form.blocks, .threads = form.threads});
  }
  p.chunks = form.chunks;
  p.chunk = form.chunk;
  plan.TakeWorkspace(p.rows * p.chunks * 2 * std::max<int64_t>(4, bytes_each));
  const Grid grid{.blocks = p.rows, .threads = form.threads, .blocks_y = p.chunks};
  OPWIRE_RETURN_IF_ERROR(
      launch(fmt::format("softmax::ReduceChunks<{}>", type), kStreamedThreads, 1, grid));
  return launch(fmt::format("softmax::WriteChunks<{}, {}>", type, kLog), kStreamedThreads, 1, grid);
}

}  // namespace

void AddSoftmaxGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE;
  AddGpu(table, code, "softmax", {.flags = flags, .plan = PlanRows<false>});
  AddGpu(table, code, "log_softmax", {.flags = flags, .plan = PlanRows<true>});
}

}  // namespace opwire::gpu::softmax

// cumsum on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/reduce/gpu_params.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::gpu::reduce {
namespace {

constexpr std::string_view kFile = "kernels/ops/reduce/gpu_scan.cuh",
                           kReduceFile = "kernels/ops/reduce/gpu.cuh";
constexpr int kThreads = 256;

// Chunks of an extent: up to `most`, each but the last of a multiple of `unit` elements.
void Split(opw::reduce::ScanParams& p, int64_t wanted, int64_t most, int64_t unit) {
  const int64_t chunks = std::min(wanted, most);
  if (chunks <= 1) return;
  p.chunk = (BlocksFor(p.extent, chunks) + unit - 1) / unit * unit;
  p.chunks = BlocksFor(p.extent, p.chunk);
}

Status PlanScan(const Call& call, Plan& plan) {
  const opw_tensor& x = call.operand(0);
  const int dim = ops::Axis(call.attr(0).value.i, x.rank);
  const int64_t bytes_each = DTypeBytes(ops::TypeOf(x)), units = call.multiprocessors();
  const std::string_view type = CodeName(ops::TypeOf(x));
  opw::reduce::ScanParams p{};
  p.extent = p.chunk = x.shape[dim];
  p.columns = x.elements / p.extent;
  p.inner = ops::ElementsFrom(x, dim + 1);
  p.chunks = 1;
  const bool rows = p.inner == 1;
  const int lanes = p.extent * bytes_each <= 1024 ? 32 : 0;
  if (!rows)
    Split(p, BlocksFor(units * 2048, p.columns), std::min<int64_t>(p.extent / 64, 128), 1);
  else if (lanes == 0)
    Split(p, p.columns < 2 * units ? BlocksFor(4 * units, p.columns) : 1,
          p.extent * bytes_each / (16 << 10), 64);
  if (p.chunks > 1) {
    const std::string body =
        rows ? fmt::format("reduce::ReduceRows<reduce::SumOf<{}>, 0, false>", type)
             : fmt::format("reduce::ReduceColumns<reduce::SumOf<{}>, 1, false, {}, 1, 8>", type,
                           kThreads);
    Kernel* const reduction = call.code.Get({kReduceFile, body, "reduce::ReduceParams", kThreads});
    opw::reduce::ReduceParams f{};
    f.columns = f.vectors = p.columns;
    f.extent = p.extent;
    f.inner = p.inner;
    f.chunks = p.chunks;
    f.chunk = p.chunk;
    f.lane_bits = 5;
    plan.TakeWorkspace(p.columns * p.chunks * std::max<int64_t>(4, bytes_each));
    const Grid grid{.blocks = rows ? p.columns : BlocksFor(p.columns, 1 << f.lane_bits),
                    .threads = kThreads,
                    .blocks_y = p.chunks};
    plan.Launch(reduction, grid, f, {{&f.x, Operand(0)}, {&f.y, Workspace()}});
  }
  const std::string body = rows ? fmt::format("reduce::ScanRows<{}, {}>", type, lanes)
                                : fmt::format("reduce::ScanColumns<{}>", type);
  Kernel* const scan = call.code.Get({kFile, body, "reduce::ScanParams", kThreads});
  const int64_t blocks = !rows        ? BlocksFor(p.columns, kThreads)
                         : lanes == 0 ? p.columns
                                      : BlocksFor(p.columns, kThreads / lanes);
  const Grid grid{
      .blocks = std::min<int64_t>(blocks, INT32_MAX), .threads = kThreads, .blocks_y = p.chunks};
  if (p.chunks > 1)
    plan.Launch(scan, grid, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}, {&p.sums, Workspace()}});
  else
    plan.Launch(scan, grid, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}});
  return absl::OkStatus();
}

}  // namespace

void AddScanGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "cumsum", {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanScan});
}

}  // namespace opwire::gpu::reduce

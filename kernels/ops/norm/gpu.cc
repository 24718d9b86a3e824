// layer_norm and rms_norm, of x or of x + residual, on GPUs: which form a call takes.
#include "kernels/ops/norm/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/row_launch.h"
#include "kernels/ops/norm/gpu_params.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::gpu::norm {
namespace {

template <bool kLayer, bool kResidual>
Status PlanRows(const Call& call, Plan& plan) {
  const opw_tensor& x = call.operand(0);
  constexpr int kWeight = kResidual ? 2 : 1, kBias = kWeight + 1;
  const int64_t extent = ops::ElementsFrom(x, x.rank - static_cast<int>(call.attr(0).value.i));
  NormRows n{.type = ops::TypeOf(x),
             .rows = x.elements / extent,
             .extent = extent,
             .eps = call.attr(1).value.f,
             .layer = kLayer,
             .x = Operand(0),
             .y = Result(0)};
  if (!ops::Absent(call.operand(kWeight))) n.weight = Operand(call.c->starts[kWeight]);
  if (kLayer && !ops::Absent(call.operand(kBias))) n.bias = Operand(call.c->starts[kBias]);
  if (kResidual) n.residual = Operand(1), n.sum = Result(1);
  return PlanNormRows(call, n, plan);
}

}  // namespace

Status PlanNormRows(const Call& call, const NormRows& n, Plan& plan) {
  constexpr std::string_view kFile = "kernels/ops/norm/gpu.cuh", kParams = "norm::RowsParams";
  const int64_t bytes_each = DTypeBytes(n.type);
  const std::string_view type = CodeName(n.type);
  const bool residual = n.residual.has_value();
  const std::string which = fmt::format("{}, {}, {}, {}, {}", type, n.layer, n.weight.has_value(),
                                        n.bias.has_value(), residual);
  opw::norm::RowsParams p{};
  p.eps = n.eps;
  p.extent = n.extent;
  p.rows = n.rows;
  int64_t partials = 0;
  const auto launch = [&](const std::string& body, int bound, int resident, const Grid& grid,
                          int cluster = 1) -> Status {
    Kernel* const f = call.code.Get({kFile, body, std::string(kParams), bound, resident, cluster});
    std::vector<Field> fields = {{&p.x, n.x}, {&p.y, n.y}};
    if (n.weight) fields.push_back({&p.weight, *n.weight});
    if (n.bias) fields.push_back({&p.bias, *n.bias});
    if (residual) fields.insert(fields.end(), {{&p.residual, *n.residual}, {&p.sum, *n.sum}});
    if (p.chunks > 1) fields.push_back({&p.partials, Workspace(partials)});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    return absl::OkStatus();
  };
  const int operands = n.weight.has_value() + n.bias.has_value();
  if (const WalkedForm form =
          residual ? WalkedForm{} : WalkedFormOf(call, p.rows, p.extent, bytes_each, operands);
      form.threads > 0) {
    const std::string body =
        fmt::format("norm::WalkedRows<{}, {}, {}, {}, {}, {}>", type, n.layer, n.weight.has_value(),
                    n.bias.has_value(), form.vectors, form.threads);
    return launch(body, form.threads, form.resident,
                  {.blocks = form.blocks, .threads = form.threads, .shared = form.shared});
  }
  // Vectors per thread: more for a layer norm's rows that are not whole vectors, as each is work.
  const int each = n.layer && p.extent * bytes_each % 16 != 0 ? 8 : n.layer || residual ? 4 : 3;
  if (const HeldForm form =
          HeldFormOf(call, p.rows, p.extent, bytes_each, each, residual ? 512 : 1024);
      form.threads > 0) {
    const Grid grid{
        .blocks = BlocksOf(form, p.rows), .threads = form.threads, .shared = form.shared};
    const bool early =
        !residual && form.vectors > 0 && form.vectors * operands <= (form.threads <= 256 ? 4 : 2);
    const int registers = residual                                             ? 64
                          : form.vectors == 0 || (n.layer && form.vectors > 3) ? 40
                                                                               : 32;
    const int threads = form.vectors > 0 ? form.threads : 0;  // as the kernel knows them
    const std::string body = fmt::format("norm::HeldRows<{}, {}, {}, {}, {}>", which, form.lanes,
                                         form.vectors, threads, early);
    return launch(body, form.threads, HeldTarget(form, registers, bytes_each), grid,
                  form.cluster());
  }
  if (const OnChipForm form = OnChipFormOf(p.extent, bytes_each, n.layer); form.vectors > 0) {
    return launch(fmt::format("norm::Rows<{}, {}, {}>", which, form.lanes, form.vectors),
                  ThreadLimit(form), BlockTarget(form, bytes_each, residual),
                  {.blocks = BlocksOf(form, p.rows), .threads = form.threads});
  }
  const StreamedForm form = StreamedFormOf(p.rows, p.extent, bytes_each, call.multiprocessors());
  if (form.chunks == 1) {
    return launch(fmt::format("norm::StreamedRows<{}>", which), kStreamedThreads, 1,
                  {.blocks = form.blocks, .threads = form.threads});
  }
  p.chunks = form.chunks;
  p.chunk = form.chunk;
  partials = plan.TakeWorkspace(p.rows * p.chunks * 3 * std::max<int64_t>(4, bytes_each));
  const Grid grid{.blocks = p.rows, .threads = form.threads, .blocks_y = p.chunks};
  OPWIRE_RETURN_IF_ERROR(
      launch(fmt::format("norm::ReduceChunks<{}, {}, {}>", type, n.layer, residual),
             kStreamedThreads, 1, grid));
  return launch(fmt::format("norm::WriteChunks<{}>", which), kStreamedThreads, 1, grid);
}

void AddNormGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE;
  AddGpu(table, code, "layer_norm", {.flags = flags, .plan = PlanRows<true, false>});
  AddGpu(table, code, "rms_norm", {.flags = flags, .plan = PlanRows<false, false>});
  AddGpu(table, code, "add_layer_norm", {.flags = flags, .plan = PlanRows<true, true>});
  AddGpu(table, code, "add_rms_norm", {.flags = flags, .plan = PlanRows<false, true>});
}

}  // namespace opwire::gpu::norm

// layer_norm and rms_norm, of x or of x + residual, on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/rows.h"
#include "kernels/ops/norm/gpu_params.h"
#include "kernels/ops/rows.h"

namespace opwire::gpu {
namespace {

constexpr std::string_view kFile = "kernels/ops/norm/gpu.cuh", kParams = "norm::RowsParams";

template <bool kLayer, bool kResidual>
Status PlanRows(const Call& call, Plan& plan) {
  const opw_tensor& x = call.operand(0);
  constexpr int kWeight = kResidual ? 2 : 1, kBias = kWeight + 1;
  const bool weighted = !ops::Absent(call.operand(kWeight)), biased = kLayer && !ops::Absent(call.operand(kBias));
  const int64_t bytes_each = DTypeBytes(ops::TypeOf(x));
  const std::string_view type = CodeName(ops::TypeOf(x));
  const std::string which = fmt::format("{}, {}, {}, {}, {}", type, kLayer, weighted, biased, kResidual);
  opw::norm::RowsParams p{};
  p.eps = call.attr(1).value.f;
  p.extent = ops::ElementsFrom(x, x.rank - static_cast<int>(call.attr(0).value.i));
  p.rows = x.elements / p.extent;
  const auto launch = [&](const std::string& body, int bound, int resident, const Grid& grid, int cluster = 1) -> Status {
    OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({kFile, body, std::string(kParams), bound, resident, cluster}));
    std::vector<Field> fields = {{&p.x, Operand(0)}, {&p.y, Result(0)}};
    if (weighted) fields.push_back({&p.weight, Operand(call.c->starts[kWeight])});
    if (biased) fields.push_back({&p.bias, Operand(call.c->starts[kBias])});
    if (kResidual) fields.insert(fields.end(), {{&p.residual, Operand(1)}, {&p.sum, Result(1)}});
    if (p.chunks > 1) fields.push_back({&p.partials, Workspace()});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    return absl::OkStatus();
  };
  if (const HeldForm form = HeldFormOf(call, p.rows, p.extent, bytes_each); form.threads > 0) {
    const Grid grid{.blocks = BlocksOf(form, p.rows), .threads = form.threads, .shared = form.shared};
    return launch(fmt::format("norm::HeldRows<{}, {}>", which, form.lanes), form.threads, HeldTarget(form), grid, form.cluster());
  }
  if (const OnChipForm form = OnChipFormOf(p.extent, bytes_each); form.vectors > 0) {
    return launch(fmt::format("norm::Rows<{}, {}, {}>", which, form.lanes, form.vectors), ThreadLimit(form), BlockTarget(form, bytes_each),
                  {.blocks = BlocksOf(form, p.rows), .threads = form.threads});
  }
  const StreamedForm form = StreamedFormOf(p.rows, p.extent, bytes_each, call.multiprocessors());
  if (form.chunks == 1) {
    return launch(fmt::format("norm::StreamedRows<{}>", which), kStreamedThreads, 1, {.blocks = form.blocks, .threads = form.threads});
  }
  p.chunks = form.chunks;
  p.chunk = form.chunk;
  plan.TakeWorkspace(p.rows * p.chunks * 3 * std::max<int64_t>(4, bytes_each));
  const Grid grid{.blocks = p.rows, .threads = form.threads, .blocks_y = p.chunks};
  OPWIRE_RETURN_IF_ERROR(launch(fmt::format("norm::FoldChunks<{}, {}, {}>", type, kLayer, kResidual), kStreamedThreads, 1, grid));
  return launch(fmt::format("norm::WriteChunks<{}>", which), kStreamedThreads, 1, grid);
}

}  // namespace

void AddNormGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE;
  AddGpu(table, code, "layer_norm", {.flags = flags, .plan = PlanRows<true, false>});
  AddGpu(table, code, "rms_norm", {.flags = flags, .plan = PlanRows<false, false>});
  AddGpu(table, code, "add_layer_norm", {.flags = flags, .plan = PlanRows<true, true>});
  AddGpu(table, code, "add_rms_norm", {.flags = flags, .plan = PlanRows<false, true>});
}

}  // namespace opwire::gpu

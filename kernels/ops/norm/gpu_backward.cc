// layer_norm_backward and rms_norm_backward on GPUs: selects the form for a call.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/fused.h"
#include "kernels/ops/gpu/row_launch.h"
#include "kernels/ops/norm/gpu_backward_params.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::gpu::norm {
namespace {

constexpr std::string_view kBackwardFile = "kernels/ops/norm/gpu_backward.cuh";
constexpr int kThreads = opw::norm::kColumnLanes * opw::norm::kColumnSlices;
constexpr int64_t kLeastRows = 32;  // of a block of rows whose columns are summed

// Plans grad_x, and the scale of each row in the workspace at `scales`.
template <bool kLayer>
Status PlanGradX(const Call& call, Plan& plan, int64_t rows, int64_t extent, int64_t scales) {
  const DType dtype = ops::TypeOf(call.operand(1));
  const int64_t bytes_each = DTypeBytes(dtype), compute_bytes = std::max<int64_t>(4, bytes_each);
  const bool weighted = !ops::Absent(call.operand(2));
  const std::string which = fmt::format("{}, {}, {}", CodeName(dtype), kLayer, weighted);
  opw::norm::BackwardParams p{};
  p.eps = call.attr(1).value.f;
  p.rows = rows;
  p.extent = extent;
  int64_t states = 0;
  const auto launch = [&](const std::string& body, int bound, int resident, const Grid& grid,
                          int cluster = 1) -> Status {
    Kernel* const f =
        call.code.Get({kBackwardFile, body, "norm::BackwardParams", bound, resident, cluster});
    std::vector<Field> fields = {{&p.grad, Operand(0)},
                                 {&p.x, Operand(1)},
                                 {&p.grad_x, Result(0)},
                                 {&p.scales, Workspace(scales)}};
    if (weighted) fields.push_back({&p.weight, Operand(2)});
    if (p.chunks > 1) fields.push_back({&p.states, Workspace(states)});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    return absl::OkStatus();
  };
  // x and grad are held: twice the registers of one row.
  if (const OnChipForm form = OnChipFormOf(call, rows, extent, bytes_each); form.vectors > 0) {
    return launch(fmt::format("norm::BackwardRows<{}, {}, {}>", which, form.lanes, form.vectors),
                  ThreadLimit(form), std::max(1, BlockTarget(form, bytes_each) / 2),
                  {.blocks = BlocksOf(form, rows), .threads = form.threads}, form.cluster());
  }
  const StreamedForm form = StreamedFormOf(rows, extent, 2 * bytes_each, call.multiprocessors());
  if (form.chunks == 1) {
    return launch(fmt::format("norm::BackwardStreamed<{}>", which), kStreamedThreads, 1,
                  {.blocks = form.blocks, .threads = form.threads});
  }
  p.chunks = form.chunks;
  p.chunk = form.chunk;
  states = plan.TakeWorkspace(rows * p.chunks * 5 * compute_bytes);
  const Grid grid{.blocks = rows, .threads = form.threads, .blocks_y = p.chunks};
  OPWIRE_RETURN_IF_ERROR(
      launch(fmt::format("norm::BackwardReduceChunks<{}>", which), kStreamedThreads, 1, grid));
  return launch(fmt::format("norm::BackwardWriteChunks<{}>", which), kStreamedThreads, 1, grid);
}

// The form of BackwardWalked for a row of whole vectors: `lanes` of a warp, or with 0 a block.
struct WalkForm {
  int lanes, vectors;  // of 16 bytes per thread
  int threads;         // per block; 0: the row is too long or has no whole vectors
  int resident;        // blocks per multiprocessor
};
// As many threads as leave each thread the registers for its columns' sums. For 16-bit floats these
// are 16 per vector. The vectors of two rows, of the weight and of the `added` operand need
// registers, too.
WalkForm WalkFormOf(int64_t extent, int64_t bytes_each, bool added) {
  constexpr WalkForm kForms[] = {{8, 1, 256, 4},  {16, 1, 256, 4}, {32, 1, 256, 4},
                                 {32, 2, 256, 2}, {32, 3, 256, 2}, {32, 4, 128, 2}};
  const int64_t vectors = extent * bytes_each / 16;
  if (extent * bytes_each % 16 != 0) return {};
  for (const WalkForm& form : kForms) {
    if (vectors > form.lanes * form.vectors) continue;
    if (added && form.vectors == 3) return {form.lanes, form.vectors, 128, 3};
    return {form.lanes, form.vectors, form.threads,
            bytes_each == 8 && form.vectors == 1 ? 2 : form.resident};
  }
  if (vectors > 512 * 2) return {};
  const int threads = static_cast<int>(BlocksFor(vectors, 64, 2) * 64);
  return {0, 2, threads, threads <= 128 ? 3 : threads <= 256 ? 2 : 1};
}

// Plans grad_x and the blocks' sums over their rows in one launch. Returns the number of partial
// sums.
template <bool kLayer>
StatusOr<int64_t> PlanWalk(const Call& call, Plan& plan, int64_t rows, int64_t extent,
                           const WalkForm& form, int64_t& partials) {
  const DType dtype = ops::TypeOf(call.operand(1));
  const bool weighted = !ops::Absent(call.operand(2)), added = !ops::Absent(call.operand(3));
  const int bound = form.lanes > 0        ? form.threads
                    : form.threads <= 128 ? 128
                    : form.threads <= 256 ? 256
                                          : 512;
  const int64_t blocks =
      std::min<int64_t>(BlocksFor(rows, form.lanes == 0 ? 1 : form.threads / form.lanes),
                        int64_t{form.resident} * call.multiprocessors());
  opw::norm::BackwardParams p{};
  p.eps = call.attr(1).value.f;
  p.rows = rows;
  p.extent = extent;
  partials = plan.TakeWorkspace(blocks * extent * (kLayer ? 2 : 1) *
                                std::max<int64_t>(4, DTypeBytes(dtype)));
  Kernel* const f =
      call.code.Get({"kernels/ops/norm/gpu_backward_walk.cuh",
                     fmt::format("norm::BackwardWalked<{}, {}, {}, {}, {}, {}>", CodeName(dtype),
                                 kLayer, weighted, added, form.lanes, form.vectors),
                     "norm::BackwardParams", bound, form.resident});
  std::vector<Field> fields = {{&p.grad, Operand(0)},
                               {&p.x, Operand(1)},
                               {&p.grad_x, Result(0)},
                               {&p.partials, Workspace(partials)}};
  if (weighted) fields.push_back({&p.weight, Operand(2)});
  if (added) fields.push_back({&p.residual, Operand(3)});
  plan.LaunchBytes(f, {.blocks = blocks, .threads = form.threads}, &p, sizeof p, fields);
  return blocks;
}

// Adds the residual to grad_x.
Status PlanResidual(const Call& call, Plan& plan) {
  const opw_tensor* const tensors[] = {&call.result(), &call.operand(3), &call.result()};
  const Source sources[] = {Result(0), Operand(3), Result(0)};
  return PlanAdd(call.code, tensors, sources, plan);
}

// The same with two more launches, for all rows.
template <bool kLayer>
StatusOr<int64_t> PlanParts(const Call& call, Plan& plan, int64_t rows, int64_t extent,
                            int64_t& partials) {
  const DType dtype = ops::TypeOf(call.operand(1));
  const int64_t bytes_each = DTypeBytes(dtype), compute_bytes = std::max<int64_t>(4, bytes_each);
  const int64_t scales = plan.TakeWorkspace(rows * 2 * compute_bytes);
  OPWIRE_RETURN_IF_ERROR(PlanGradX<kLayer>(call, plan, rows, extent, scales));
  if (!ops::Absent(call.operand(3))) OPWIRE_RETURN_IF_ERROR(PlanResidual(call, plan));
  // Blocks of rows that fill the device, with vectors of columns if all rows have equal alignment.
  const int64_t width = extent * bytes_each % 16 == 0 ? 16 / bytes_each : 1;
  const int64_t tiles = BlocksFor(extent, opw::norm::kColumnLanes, width),
                wanted = std::max<int64_t>(1, int64_t{8} * call.multiprocessors() / tiles);
  opw::norm::ColumnsParams columns{};
  columns.rows = rows;
  columns.extent = extent;
  columns.each = std::max(kLeastRows, BlocksFor(rows, wanted));
  const int64_t parts = BlocksFor(rows, columns.each);
  partials = plan.TakeWorkspace(parts * extent * (kLayer ? 2 : 1) * compute_bytes);
  Kernel* const f = call.code.Get(
      {kBackwardFile, fmt::format("norm::ColumnSums<{}, {}, {}>", CodeName(dtype), kLayer, width),
       "norm::ColumnsParams", kThreads, 3});
  plan.Launch(f, {.blocks = tiles, .threads = kThreads, .blocks_y = parts}, columns,
              {{&columns.grad, Operand(0)},
               {&columns.x, Operand(1)},
               {&columns.scales, Workspace(scales)},
               {&columns.partials, Workspace(partials)}});
  return parts;
}

template <bool kLayer>
Status PlanBackward(const Call& call, Plan& plan) {
  const opw_tensor& x = call.operand(1);
  const DType dtype = ops::TypeOf(x);
  const int64_t extent = ops::ElementsFrom(x, x.rank - static_cast<int>(call.attr(0).value.i)),
                rows = x.elements / extent;
  constexpr uint32_t kSums = kLayer ? 2 : 1;
  if (rows == 0) {
    for (uint32_t i = 1; i <= kSums; ++i) plan.Zero(Result(i), extent * DTypeBytes(dtype));
    return absl::OkStatus();
  }
  const WalkForm form = WalkFormOf(extent, DTypeBytes(dtype), !ops::Absent(call.operand(3)));
  int64_t partials = 0;
  opw::norm::SumsParams sums{};
  sums.extent = extent;
  OPWIRE_ASSIGN_OR_RETURN(
      sums.parts, form.threads > 0 ? PlanWalk<kLayer>(call, plan, rows, extent, form, partials)
                                   : PlanParts<kLayer>(call, plan, rows, extent, partials));
  constexpr int kReduceThreads = opw::norm::kColumnLanes * opw::norm::kReduceSlices;
  Kernel* const reduction =
      call.code.Get({kBackwardFile, fmt::format("norm::ReduceSums<{}>", CodeName(dtype)),
                     "norm::SumsParams", kReduceThreads});
  std::vector<Field> fields = {{&sums.partials, Workspace(partials)},
                               {&sums.grad_weight, Result(1)}};
  if (kLayer) fields.push_back({&sums.grad_bias, Result(2)});
  const Grid grid{.blocks = std::min<int64_t>(BlocksFor(extent, opw::norm::kColumnLanes), 1 << 20),
                  .threads = kReduceThreads,
                  .blocks_y = kSums};
  plan.LaunchBytes(reduction, grid, &sums, sizeof sums, fields);
  return absl::OkStatus();
}

}  // namespace

void AddNormBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "layer_norm_backward", {.flags = flags, .plan = PlanBackward<true>});
  AddGpu(table, code, "rms_norm_backward", {.flags = flags, .plan = PlanBackward<false>});
}

}  // namespace opwire::gpu::norm

// embedding_backward on GPUs: groups its positions by row, and divides them into spans.
#include <fmt/format.h>

#include <bit>

#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/shape/gpu.h"
#include "kernels/ops/shape/gpu_params.h"

namespace opwire::gpu::shape {
namespace {

constexpr int kThreads = 256;

int BitsFor(int64_t n) {
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, n)) - 1);
}  // logarithm of the least power of 2 that is at least n

// Rows of a block that groups. Each block reads all places from the second-level cache. There are
// two blocks per multiprocessor, which also keep it busy with the zeros that they write. With many
// places there are fewer blocks.
int RowBits(const Call& call, int64_t rows, int64_t positions, int64_t bytes) {
  const int64_t blocks = positions <= 1 << 17 ? int64_t{2} * call.multiprocessors()
                                              : std::max(1, call.multiprocessors() / 2);
  return std::min(BitsFor(BlocksFor(rows, blocks)), BitsFor(2048 / bytes));  // kMostRows
}

Status PlanEmbeddingBackward(const Call& call, Plan& plan) {
  const opw_tensor &index = call.operand(1), &y = call.result();
  const DType type = ops::TypeOf(y);
  const int64_t compute_bytes = std::max<int64_t>(4, DTypeBytes(type));
  opw::shape::EmbeddingBackwardParams p{};
  p.positions = index.elements;
  p.rows = y.shape[0];
  p.columns = y.shape[1];
  const int64_t bytes =
      std::max(p.positions, p.rows) < UINT32_MAX - opw::shape::kGroupThreads * 8 ? 4 : 8;
  const int64_t width = p.columns % (16 / DTypeBytes(type)) == 0 ? 16 / DTypeBytes(type) : 1,
                join_width = p.columns % 4 == 0 ? 4 : 1;
  p.each = std::max<int64_t>(4, (BlocksFor(p.positions, opw::shape::kGroupThreads) + 3) / 4 * 4);
  p.row_bits = RowBits(call, p.rows, p.positions, bytes);
  p.lane_bits = std::min(5, BitsFor(p.columns / width));
  p.span =
      int64_t{1} << std::clamp(BitsFor(p.positions / 1024), 4,
                               8);  // about 1024 spans, each with one warp for a batch of columns
  const int64_t spans = BlocksFor(p.positions, p.span);
  const int64_t places = plan.TakeWorkspace(opw::shape::kGroupThreads * p.each * bytes),
                order = plan.TakeWorkspace(p.positions * bytes),
                named = plan.TakeWorkspace(p.positions * bytes), found = plan.TakeWorkspace(8),
                partials = plan.TakeWorkspace(spans * 2 * p.columns * compute_bytes);
  const auto launch = [&](const std::string& body, int resident, const Grid& grid) -> Status {
    Kernel* const f = call.code.Get({"kernels/ops/shape/gpu_embedding.cuh", body,
                                     "shape::EmbeddingBackwardParams", grid.threads, resident});
    plan.Launch(f, grid, p,
                {{&p.grad, Operand(0)},
                 {&p.index, Operand(1)},
                 {&p.y, Result(0)},
                 {&p.places, Workspace(places)},
                 {&p.order, Workspace(order)},
                 {&p.named, Workspace(named)},
                 {&p.found, Workspace(found)},
                 {&p.partials, Workspace(partials)},
                 {&p.reporter, Reports()}});
    return absl::OkStatus();
  };
  const std::string_view name = CodeName(type), place = BitsName(bytes);
  OPWIRE_RETURN_IF_ERROR(launch(
      fmt::format("shape::FindPlaces<{}, {}>", CodeName(ops::TypeOf(index)), place), 0,
      {.blocks =
           std::min<int64_t>(BlocksFor(opw::shape::kGroupThreads * p.each, kThreads), 1 << 20),
       .threads = kThreads}));
  OPWIRE_RETURN_IF_ERROR(launch(fmt::format("shape::GroupRows<{}, {}>", name, place), 2,
                                {.blocks = BlocksFor(p.rows, int64_t{1} << p.row_bits),
                                 .threads = opw::shape::kGroupThreads}));
  if (spans == 0) return absl::OkStatus();
  const int64_t tiles = std::min<int64_t>(BlocksFor(p.columns, width << p.lane_bits), 65535);
  OPWIRE_RETURN_IF_ERROR(launch(fmt::format("shape::SumSpans<{}, {}, {}>", name, place, width), 3,
                                {.blocks = BlocksFor(spans << p.lane_bits, kThreads),
                                 .threads = kThreads,
                                 .blocks_y = tiles}));
  if (spans == 1) return absl::OkStatus();
  return launch(fmt::format("shape::JoinSpans<{}, {}, {}>", name, place, join_width),
                compute_bytes == 8 ? 2 : 4,
                {.blocks = BlocksFor(spans, opw::shape::kJoinedSpans),
                 .threads = 32 * opw::shape::kJoinedSpans,
                 .blocks_y = std::min<int64_t>(BlocksFor(p.columns, 32 * join_width), 64)});
}

}  // namespace

void AddEmbeddingBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "embedding_backward",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanEmbeddingBackward});
}

}  // namespace opwire::gpu::shape

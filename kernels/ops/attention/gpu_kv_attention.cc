// kv_attention on GPUs. Positions are split among blocks, by products of tiles or lane by lane;
// another form supports any size.
#include <fmt/format.h>

#include <bit>
#include <optional>

#include "kernels/ops/attention/gpu_kv_attention_params.h"
#include "kernels/ops/attention/kv_attention.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::attention {
namespace {

using Shapes = ops::attention::KvAttentionShapes;

constexpr std::string_view kKvFile = "kernels/ops/attention/gpu_kv_attention.cuh",
                           kSplitFile = "kernels/ops/attention/gpu_kv_split.cuh",
                           kTileFile = "kernels/ops/attention/gpu_kv_tiles.cuh",
                           kKvParams = "attention::KvParams";
constexpr int kPageThreads = opw::attention::kKvPageThreads,
              kSplitThreads = opw::attention::kKvSplitThreads,
              kJoinThreads = opw::attention::kKvJoinThreads,
              kStep = 4;  // most positions of a group's step
constexpr int kTileRows = opw::attention::kKvTileRows, kTileStep = opw::attention::kKvTileStep;
constexpr int64_t kMostInGrid = 65535, kMostDepth = 256, kMostTileDepth = 128;
constexpr int64_t kFewRows = 4, kFewPositions = 8192, kMostShared = 47 << 10;
constexpr int64_t kFewestPositions = 2048;  // up to this number each row reads them separately: the
                                            // serial work of a thread takes longer

opw::attention::KvParams ParamsOf(const Shapes& s) {
  opw::attention::KvParams p{};
  p.slices = s.batches * s.heads, p.heads = s.heads, p.queries = s.queries, p.rows = s.rows,
  p.depth = s.depth, p.value_depth = s.value_depth;
  p.positions = s.positions, p.page = s.page, p.pages = s.pages;
  if (s.paged) p.row_pages = s.table.shape[1];
  p.lengths = s.one() ? 1 : s.batches;
  p.wide = ops::TypeOf(s.length) == DType::kI64;
  p.splits = 1;
  p.causal = s.causal, p.window = s.window;
  p.scale = s.scale;
  const auto divisor = [](int64_t d) { return DivisorOf(std::clamp<int64_t>(d, 1, INT32_MAX)); };
  p.of_page = divisor(s.page), p.of_heads = divisor(s.heads), p.of_queries = divisor(s.queries);
  return p;
}

void LaunchKv(const Call& call, Kernel* f, const Grid& grid, const opw::attention::KvParams& p,
              Plan& plan, std::optional<int64_t> sums = std::nullopt, int64_t partials = 0) {
  std::vector<Field> fields = {{&p.query, Operand(0)},  {&p.key, Operand(1)},
                               {&p.value, Operand(2)},  {&p.length, Operand(3)},
                               {&p.output, Result(0)},  {&p.log_sum_exp, Result(1)},
                               {&p.reporter, Reports()}};
  if (!ops::Absent(call.operand(4))) fields.push_back({&p.table, Operand(4)});
  if (sums)
    fields.insert(fields.end(),
                  {{&p.partial_sums, Workspace(*sums)}, {&p.partials, Workspace(partials)}});
  plan.LaunchBytes(f, grid, &p, sizeof p, fields);
}

Status PlanByPages(const Call& call, Plan& plan) {
  const Shapes s(call.c);
  const opw::attention::KvParams p = ParamsOf(s);
  const std::string body = fmt::format("attention::KvByPages<{}>", CodeName(ops::TypeOf(s.query)));
  Kernel* const f = call.code.Get({kKvFile, body, std::string(kKvParams), kPageThreads});
  LaunchKv(call, f,
           {.blocks = std::min<int64_t>(p.slices * p.rows, INT32_MAX), .threads = kPageThreads}, p,
           plan);
  return absl::OkStatus();
}

const char* SupportsSplits(const opw_call* c) {
  const Shapes s(c);
  if (std::max(s.depth, s.value_depth) > kMostDepth) return "a head has more than 256 elements";
  if (s.paged && s.page % kStep != 0) return "a page has no multiple of 4 positions";
  if (s.paged && s.pages == 0) return "there are no pages";
  if (s.positions > INT32_MAX) return "more than 2^31 positions";
  if (s.rows > kMostInGrid) return "more than 65535 rows of queries share a head of keys";
  return nullptr;
}

// Launches `f`, and the kernel that joins its splits. A multiprocessor holds `resident` blocks of
// `f`, and each block processes `step` positions at a time.
Status LaunchSplits(const Call& call, Kernel* f, opw::attention::KvParams p, int64_t tiles,
                    int resident, int64_t step, Plan& plan) {
  const DType type = ops::TypeOf(Shapes(call.c).query);
  const int64_t most = std::clamp<int64_t>(
      p.positions / (2 * step), 1, opw::attention::kKvMostSplits);  // at least two steps each
  // All blocks run at once: blocks of a second wave would start after most others have ended.
  p.splits = std::clamp<int64_t>(
      int64_t{resident} * call.multiprocessors() / std::max<int64_t>(1, p.slices * tiles), 1, most);
  const int64_t all = p.slices * p.rows * p.splits, bytes = std::max<int64_t>(4, DTypeBytes(type));
  std::optional<int64_t> sums;
  int64_t partials = 0;
  if (p.splits > 1) {
    sums = plan.TakeWorkspace(all * p.value_depth * bytes);
    partials = plan.TakeWorkspace(all * 2 * bytes);
  }
  LaunchKv(call, f,
           {.blocks = p.splits,
            .threads = kSplitThreads,
            .blocks_y = tiles,
            .blocks_z = std::min<int64_t>(p.slices, kMostInGrid)},
           p, plan, sums, partials);
  if (p.splits == 1) return absl::OkStatus();
  Kernel* const join = call.code.Get({kKvFile, fmt::format("attention::KvJoin<{}>", CodeName(type)),
                                      std::string(kKvParams), kJoinThreads});
  LaunchKv(call, join, {.blocks = p.slices * p.rows, .threads = kJoinThreads}, p, plan, sums,
           partials);
  return absl::OkStatus();
}

// Few rows that see few positions: most time is latency. They use one launch, in which the splits
// are the blocks of a cluster.
bool IsShort(const Shapes& s) {
  return s.rows <= kFewRows && s.positions <= kFewPositions && !s.paged && s.window == 0;
}

Status PlanSplits(const Call& call, Plan& plan) {
  const Shapes s(call.c);
  const DType type = ops::TypeOf(s.query);
  const int64_t width = 16 / DTypeBytes(type),
                vectors =
                    std::max<int64_t>(1, (std::max(s.depth, s.value_depth) + width - 1) / width);
  const int64_t lanes = std::clamp<int64_t>(
                    static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vectors))), 8, 32),
                each = std::bit_ceil(static_cast<uint64_t>((vectors + lanes - 1) / lanes));
  const bool amd =
      call.code.device().info().arch.starts_with("gfx");  // its compiler keeps more at a time
  const int64_t most_rows = IsShort(s) && s.positions <= kFewestPositions ? 1
                            : each == 1 && !amd                           ? 8
                            : each <= 2                                   ? 4
                                                                          : 2;
  const int64_t rows = std::min<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.rows)), most_rows),
                tiles = (s.rows + rows - 1) / rows;
  const int resident = rows == 8 || each > 1 ? 2
                       : rows == 4           ? 3
                                   : 4;  // blocks per multiprocessor, by the registers of a thread
  const auto kernel = [&](int cluster) {
    return call.code.Get({kSplitFile,
                          fmt::format("attention::KvSplit<{}, {}, {}, {}, {}>", CodeName(type),
                                      rows, lanes, each, cluster),
                          std::string(kKvParams), kSplitThreads, resident, cluster,
                          /*awaits=*/true});
  };
  opw::attention::KvParams p = ParamsOf(s);
  const int64_t step = kStep * kSplitThreads / lanes,
                blocks = std::bit_floor(static_cast<uint64_t>(
                    std::clamp<int64_t>(s.positions / step, 1, call.code.cluster_blocks())));
  const int64_t shared =
      (kSplitThreads / 32 + blocks) * rows * (lanes * width + 2) *
      std::max<int64_t>(4, DTypeBytes(type));  // partial results of warps and blocks
  if (blocks > 1 && each == 1 && IsShort(s) && p.slices <= kMostInGrid && shared <= kMostShared) {
    p.splits = blocks;
    LaunchKv(call, kernel(static_cast<int>(blocks)),
             {.blocks = blocks, .threads = kSplitThreads, .blocks_y = tiles, .blocks_z = p.slices},
             p, plan);
    return absl::OkStatus();
  }
  return LaunchSplits(call, kernel(1), p, tiles, resident, step, plan);
}

const char* SupportsTiles(const opw_call* c) {
  const Shapes s(c);
  if (s.depth % 8 != 0 || s.value_depth % 8 != 0) return "a head has no multiple of 8 elements";
  if (std::max(s.depth, s.value_depth) > kMostTileDepth) return "a head has more than 128 elements";
  if (s.paged && s.page % kTileStep != 0) return "a page has no multiple of 16 positions";
  if (IsShort(s)) return "few rows of few positions, which take longer by tiles";
  return SupportsSplits(c);
}

Status PlanTiles(const Call& call, Plan& plan) {
  const Shapes s(call.c);
  constexpr int kResident = 2;  // blocks per multiprocessor: more blocks, with fewer loads in
                                // flight each, read more slowly
  const int blocks = std::max(s.depth, s.value_depth) > 64 ? 2 : 1;
  const std::string body =
      fmt::format("attention::KvTiles<{}, {}>", CodeName(ops::TypeOf(s.query)), blocks);
  Kernel* const f =
      call.code.Get({kTileFile, body, std::string(kKvParams), kSplitThreads, kResident});
  return LaunchSplits(call, f, ParamsOf(s), (s.rows + kTileRows - 1) / kTileRows, kResident,
                      opw::attention::kKvTileParts[blocks] * kTileStep * kSplitThreads / 32, plan);
}

}  // namespace

void AddKvAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  if (code->multiplies_tiles()) {
    AddGpu(table, code, "kv_attention",
           {.name = "tiles",
            .priority = 1,
            .dtypes = DTypeSet{DType::kF16, DType::kBF16},
            .flags = flags,
            .supports = SupportsTiles,
            .plan = PlanTiles});
  }
  AddGpu(table, code, "kv_attention",
         {.name = "split", .flags = flags, .supports = SupportsSplits, .plan = PlanSplits});
  AddGpu(table, code, "kv_attention",
         {.name = "portable", .tier = Tier::kReference, .flags = flags, .plan = PlanByPages});
}

}  // namespace opwire::gpu::attention

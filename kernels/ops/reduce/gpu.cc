// Reductions on GPUs, of any axes: one of the innermost reduced axes, then reductions of the
// resulting states.
#include <fmt/format.h>

#include <bit>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/reduce/gpu_params.h"
#include "kernels/ops/reduce/reduce.h"

namespace opwire::gpu::reduce {
namespace {

constexpr std::string_view kFile = "kernels/ops/reduce/gpu.cuh", kParams = "reduce::ReduceParams";
constexpr int kThreads = 256;

// An operation by its name in device code.
struct ReduceOp {
  std::string code;
  int64_t element_bytes, state_bytes;
  bool arg;
};
enum class Kind { kSum, kMean, kProd, kMost, kLeast, kArgMost, kArgLeast };
ReduceOp OpOf(Kind kind, DType type) {
  const int64_t bytes = DTypeBytes(type), wide = std::max<int64_t>(4, bytes);
  const std::string_view name = CodeName(type);
  switch (kind) {
    case Kind::kSum:
      return {fmt::format("reduce::SumOf<{}>", name), bytes, wide, false};
    case Kind::kMean:
      return {fmt::format("reduce::MeanOf<{}>", name), bytes, wide, false};
    case Kind::kProd:
      return {fmt::format("reduce::ProdOf<{}>", name), bytes, kFloats.Has(type) ? 8 : wide, false};
    case Kind::kMost:
    case Kind::kLeast:
      return {fmt::format("reduce::ExtremeOf<{}, {}>", name, kind == Kind::kMost), bytes, wide,
              false};
    default:
      return {fmt::format("reduce::ArgOf<{}, {}>", name, kind == Kind::kArgMost), bytes, 16, true};
  }
}

// Neighbouring axes of a dense tensor that are all reduced or all kept, as one axis.
struct Part {
  int64_t extent;
  bool reduced;
};
std::vector<Part> PartsOf(const opw_tensor& x, const bool* reduced) {
  std::vector<Part> parts;
  for (int a = 0; a < x.rank; ++a) {
    if (x.shape[a] == 1) continue;
    if (!parts.empty() && parts.back().reduced == reduced[a])
      parts.back().extent *= x.shape[a];
    else
      parts.push_back({x.shape[a], reduced[a]});
  }
  return parts;
}

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Plans the launches of one call. Each reads the results of the previous one.
class Folder {
 public:
  Folder(const Call& call, Plan& plan, ReduceOp op, int64_t count)
      : call_(call), plan_(plan), op_(std::move(op)), count_(count) {}

  // Reduces elements as [outer, extent, inner].
  Status ReduceElements(int64_t outer, int64_t extent, int64_t inner, bool final) {
    return inner == 1 ? ReduceRows(outer, extent, final)
                      : ReduceColumns(outer, extent, inner, final);
  }

  // Reduces the states of the previous launch, as [outer, extent, inner].
  Status ReduceStates(int64_t outer, int64_t extent, int64_t inner, bool final) {
    opw::reduce::ReduceParams p = Params(outer * inner, extent, inner);
    const int least = p.columns >= 8 ? 8 : 1;  // 32 bytes of f32
    int lanes = 32;
    while (lanes > least && p.columns < int64_t{lanes} * call_.multiprocessors()) lanes /= 2;
    p.lane_bits = std::countr_zero(static_cast<unsigned>(lanes));
    const int64_t blocks = CeilDiv(p.columns, lanes);
    Split(p, std::min(wanted_blocks() / blocks, extent / (32 * (kThreads / lanes))), 1);
    return Launch(p, fmt::format("reduce::ReduceStates<{}, {}>", op_.code, final && p.chunks == 1),
                  {blocks}, final, outer);
  }

 private:
  int64_t wanted_blocks() const { return int64_t{4} * call_.multiprocessors(); }

  opw::reduce::ReduceParams Params(int64_t columns, int64_t extent, int64_t inner) const {
    opw::reduce::ReduceParams p{};
    p.columns = columns;
    p.extent = p.chunk = extent;
    p.inner = inner;
    p.chunks = 1;
    p.count = count_;
    p.vectors = columns;
    return p;
  }

  // Divides the extent into about `chunks` chunks, each a multiple of `unit`, or a few fewer.
  static void Split(opw::reduce::ReduceParams& p, int64_t chunks, int64_t unit) {
    if (chunks <= 1) return;
    p.chunk = CeilDiv(CeilDiv(p.extent, chunks), unit) * unit;
    p.chunks = CeilDiv(p.extent, p.chunk);
  }

  // The division of a reduction of columns among blocks.
  struct ColumnForm {
    int lane_bits = 0;  // vectors of a row per block, as their logarithm
    int threads = kThreads;
    int cluster = 1;     // blocks that share their columns' rows
    int batch = 8;       // loads of a thread at a time
    int resident = 4;    // blocks per multiprocessor
    int64_t blocks = 0;  // or clusters, along x
  };
  // Of x as [outer, extent, inner]. Frames: a block has one vector of columns less than it reads
  // (ReduceFrames).
  struct ColumnWork {
    int64_t outer, inner;
    int width;  // elements of a vector
    bool frames;
    int64_t Blocks(int bits) const {
      const int64_t vectors = int64_t{1} << bits;
      return frames ? outer * CeilDiv(inner, width * (vectors - 1))
                    : CeilDiv(outer * CeilDiv(inner, width), vectors);
    }
    bool Allows(int bits, int threads) const {
      return !frames || (bits > 0 && (threads >> bits) % width == 0);
    }
  };

  // Prefers narrow blocks, down to 128 bytes of a row, to chunks, whose states another launch must
  // join. If there are chunks, there are as many as give each thread whole batches of loads.
  ColumnForm SplitColumns(const ColumnWork& work, opw::reduce::ReduceParams& p) const {
    constexpr int kLeastBits = 3;
    ColumnForm form{.lane_bits = 5, .batch = op_.arg ? 4 : work.width >= 16 ? 2 : 8};
    while (!work.Allows(form.lane_bits, kThreads)) --form.lane_bits;
    while (form.lane_bits > kLeastBits && work.Blocks(form.lane_bits) < wanted_blocks())
      --form.lane_bits;
    if (work.frames) {
      while (form.lane_bits > 1 && work.inner + work.width <= int64_t{work.width}
                                                                  << (form.lane_bits - 1))
        --form.lane_bits;
    } else {
      while (form.lane_bits > 0 && p.vectors <= int64_t{1} << (form.lane_bits - 1))
        --form.lane_bits;
      while (kThreads >> form.lane_bits > 1 && kThreads >> form.lane_bits > p.extent)
        ++form.lane_bits;
    }
    form.blocks = work.Blocks(form.lane_bits);
    // Four blocks share a multiprocessor, unless the states alone need more registers than that
    // leaves.
    if (work.width * op_.state_bytes > 64) form.resident = 0;
    const int64_t unit = int64_t{8} * (kThreads >> form.lane_bits);
    if (4 * form.blocks < 3 * wanted_blocks())
      Split(p, std::min<int64_t>(4 * wanted_blocks() / form.blocks, p.extent / unit), unit);
    return form;
  }

  // Clusters whose blocks share the rows, without another launch. Not used if columns are few: less
  // than 64 bytes of a row per block. About 64 KiB in flight on each multiprocessor are best; more
  // are slower. That is one block of 512 threads, with the widest columns that leave at most an
  // eighth of the multiprocessors idle. For that a cluster may have fewer blocks than the most, but
  // more than half. Otherwise it uses the widest columns that give each multiprocessor a block, or
  // two of 256 threads.
  ColumnForm ClustersOf(const ColumnWork& work, int64_t extent) const {
    constexpr int kRowsEach = 8, kLeastBits = 2;
    const int most = call_.code.cluster_blocks(), all = call_.multiprocessors(),
              units = all / most * most;
    const bool large = work.width * op_.state_bytes > 32;
    const auto form = [&](int bits, int threads, int cluster) -> ColumnForm {
      if (!work.Allows(bits, threads) || extent < int64_t{kRowsEach} * cluster * (threads >> bits))
        return {};
      return {bits,
              threads,
              cluster,
              work.width >= 16 ? 2
              : large          ? 4
                               : 8,
              large ? 0 : 1024 / threads,
              work.Blocks(bits)};
    };
    ColumnForm found;
    for (int bits = 5; most > 1 && bits >= kLeastBits && found.blocks == 0 && !work.frames;
         --bits) {
      const int64_t blocks = work.Blocks(bits), cluster = std::min<int64_t>(most, all / blocks);
      if (2 * cluster > most && 8 * blocks * cluster >= 7 * all)
        found = form(bits, 512, static_cast<int>(cluster));
    }
    for (int bits = 5; most > 1 && bits >= kLeastBits && found.blocks == 0; --bits) {
      if (work.Blocks(bits) * most >= units)
        found = form(bits, work.Blocks(bits) * most > units ? 256 : 512, most);
    }
    return found;
  }

  Status ReduceRows(int64_t rows, int64_t extent, bool final) {
    constexpr int64_t kLeastChunk = 8 << 10, kMostClustered = 512 << 10;  // bytes
    opw::reduce::ReduceParams p = Params(rows, extent, 1);
    const int64_t vectors = extent * op_.element_bytes / 16;
    const bool few = rows < 8 * wanted_blocks();  // with 32 rows per block
    const int lanes = vectors <= 128 && (!few || vectors <= 32)        ? 8
                      : vectors <= 1024 && rows >= 2 * wanted_blocks() ? 32
                                                                       : 0;
    if (lanes == 0)
      Split(p, std::min(CeilDiv(wanted_blocks(), rows), extent * op_.element_bytes / kLeastChunk),
            64);
    // If a few rows are no longer than that, clusters end before a second launch would begin.
    if (const int cluster = call_.code.cluster_blocks();
        p.chunks > 1 && cluster > 1 && extent * op_.element_bytes <= kMostClustered) {
      p.chunk = extent, p.chunks = 1;
      return Launch(p, fmt::format("reduce::ReduceRows<{}, {}, {}>", op_.code, -cluster, final),
                    {rows, 512, cluster}, final, rows);
    }
    const int64_t blocks = lanes == 0 ? rows : CeilDiv(rows, kThreads / lanes);
    return Launch(
        p, fmt::format("reduce::ReduceRows<{}, {}, {}>", op_.code, lanes, final && p.chunks == 1),
        {blocks}, final, rows);
  }

  Status ReduceColumns(int64_t outer, int64_t extent, int64_t inner, bool final) {
    opw::reduce::ReduceParams p = Params(outer * inner, extent, inner);
    const int whole = static_cast<int>(16 / op_.element_bytes);
    int width = whole;
    if (op_.arg) width = inner % 4 == 0 ? std::min(width, 4) : 1;
    if (inner < width) width = 1;
    p.vectors = outer * CeilDiv(inner, width);
    const ColumnWork work{outer, inner, width,
                          width == whole && width > 1 && inner % width != 0 && extent >= 64};
    ColumnForm form = SplitColumns(work, p);
    if (p.chunks > 1 && !op_.arg) {
      if (const ColumnForm clusters = ClustersOf(work, extent); clusters.blocks > 0) {
        form = clusters;
        p.chunks = 1;
        p.chunk = CeilDiv(CeilDiv(extent, form.cluster), 16) *
                  16;  // so that the rows of all chunks have equal alignment
      }
    }
    p.lane_bits = form.lane_bits;
    const std::string body = fmt::format(
        "reduce::{}<{}, {}, {}, {}, {}, {}>", work.frames ? "ReduceFrames" : "ReduceColumns",
        op_.code, width, final && p.chunks == 1, form.threads, form.cluster, form.batch);
    return Launch(p, body, {form.blocks, form.threads, form.cluster, form.resident}, final, outer);
  }

  struct Shape {
    int64_t blocks;  // or clusters
    int threads = kThreads, cluster = 1, resident = 0;
  };
  Status Launch(opw::reduce::ReduceParams p, const std::string& body, const Shape& shape,
                bool final, int64_t outer) {
    const bool last = final && p.chunks == 1;
    Kernel* const f = call_.code.Get(
        {kFile, body, std::string(kParams), shape.threads, shape.resident, shape.cluster});
    const Source from = at_ < 0 ? Operand(0) : Workspace(at_);
    at_ = last ? -1 : plan_.TakeWorkspace(p.columns * p.chunks * op_.state_bytes);
    const Grid grid{.blocks = std::min<int64_t>(shape.blocks * shape.cluster, INT32_MAX),
                    .threads = shape.threads,
                    .blocks_y = p.chunks};
    plan_.Launch(f, grid, p, {{&p.x, from}, {&p.y, last ? Result(0) : Workspace(at_)}});
    return p.chunks > 1 ? ReduceStates(outer, p.chunks, p.inner, final) : absl::OkStatus();
  }

  const Call& call_;
  Plan& plan_;
  const ReduceOp op_;
  const int64_t count_;
  int64_t at_ = -1;  // offset of the last launch's states in the workspace
};

Status PlanReduce(const Call& call, Plan& plan, Kind kind, const bool* reduced) {
  const opw_tensor& x = call.operand(0);
  std::vector<Part> parts = PartsOf(x, reduced);
  int64_t count = 1;
  for (int a = 0; a < x.rank; ++a) count *= reduced[a] ? x.shape[a] : 1;
  Folder folder(call, plan, OpOf(kind, ops::TypeOf(x)), count);
  if (count == 0) return folder.ReduceElements(call.result().elements, 0, 1, true);
  if (count == 1) return folder.ReduceElements(1, 1, x.elements, true);
  // From the innermost reduced part outwards; reduced parts are removed.
  bool first = true;
  int64_t inner = 1, left = count;
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (!part.reduced) {
      inner *= part.extent;
      continue;
    }
    int64_t outer = 1;
    for (const Part& other : parts) outer *= other.extent;
    left /= part.extent;
    OPWIRE_RETURN_IF_ERROR(first ? folder.ReduceElements(outer, part.extent, inner, left == 1)
                                 : folder.ReduceStates(outer, part.extent, inner, left == 1));
    first = false;
  }
  return absl::OkStatus();
}

template <Kind kKind>
Status PlanDims(const Call& call, Plan& plan) {
  const opw_attr& dims = call.attr(0);
  const int rank = call.operand(0).rank;
  bool reduced[OPW_MAX_RANK] = {};
  std::fill_n(reduced, rank, dims.count == 0);
  for (int64_t i = 0; i < dims.count; ++i) reduced[ops::Axis(dims.value.ints[i], rank)] = true;
  return PlanReduce(call, plan, kKind, reduced);
}
template <Kind kKind>
Status PlanDim(const Call& call, Plan& plan) {
  bool reduced[OPW_MAX_RANK] = {};
  reduced[ops::Axis(call.attr(0).value.i, call.operand(0).rank)] = true;
  return PlanReduce(call, plan, kKind, reduced);
}

}  // namespace

void AddReduceGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const auto add = [&](std::string_view op, Status (*plan)(const Call&, Plan&),
                       const char* (*supports)(const opw_call*) = nullptr) {
    AddGpu(table, code, op,
           {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .supports = supports, .plan = plan});
  };
  add("sum", PlanDims<Kind::kSum>);
  add("mean", PlanDims<Kind::kMean>);
  add("prod", PlanDims<Kind::kProd>);
  add("amax", PlanDims<Kind::kMost>, ops::reduce::SupportsReductionOfSomething);
  add("amin", PlanDims<Kind::kLeast>, ops::reduce::SupportsReductionOfSomething);
  add("any", PlanDims<Kind::kMost>);
  add("all", PlanDims<Kind::kLeast>);
  add("argmax", PlanDim<Kind::kArgMost>, ops::reduce::SupportsArgOfSomething);
  add("argmin", PlanDim<Kind::kArgLeast>, ops::reduce::SupportsArgOfSomething);
}

}  // namespace opwire::gpu::reduce

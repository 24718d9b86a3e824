// Shape and indexing ops on GPUs.
#include "kernels/ops/shape/gpu.h"

#include <fmt/format.h>

#include <bit>
#include <numeric>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/move.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/shape/gpu_params.h"
#include "kernels/ops/shape/put_places.h"

namespace opwire::gpu::shape {
namespace {

using ops::TypeOf;

constexpr std::string_view kFile = "kernels/ops/shape/gpu.cuh";
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;  // beyond it threads loop

int64_t Blocks(int64_t items) { return std::min(BlocksFor(items, kThreads), kMostBlocks); }

std::vector<int64_t> ShapeOf(const opw_tensor& t) { return {t.shape, t.shape + t.rank}; }
std::vector<int64_t> StridesOf(const opw_tensor& t) { return {t.strides, t.strides + t.rank}; }

// ---- Moves

Status PlanReshape(const Call& call, Plan& plan) {
  plan.Copy(Result(0), Operand(0), ops::BytesOf(call.result()));
  return absl::OkStatus();
}

Status PlanPermute(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &y = call.result();
  Move move{TypeOf(x), ShapeOf(y), StridesOf(y), {}, Result(0), Operand(0)};
  for (int a = 0; a < y.rank; ++a)
    move.from_strides.push_back(x.strides[ops::Axis(call.attr(0).value.ints[a], y.rank)]);
  return PlanMove(call, move, plan);
}

Status PlanExpand(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &y = call.result();
  Move move{TypeOf(x), ShapeOf(y), StridesOf(y), std::vector<int64_t>(y.rank),
            Result(0), Operand(0)};
  for (int a = 0; a < x.rank; ++a)
    move.from_strides[static_cast<size_t>(a + y.rank - x.rank)] =
        x.shape[a] == 1 ? 0 : x.strides[a];
  return PlanMove(call, move, plan);
}

Status PlanCat(const Call& call, Plan& plan) {
  const opw_tensor& y = call.result();
  const int dim = ops::Axis(call.attr(0).value.i, y.rank);
  int64_t at = 0;  // along dim
  for (uint32_t i = 0; i < ops::ListSize(call.c, 0); ++i) {
    const opw_tensor& x = call.c->operands[i];
    const Move move{TypeOf(y),
                    ShapeOf(x),
                    StridesOf(y),
                    StridesOf(x),
                    Result(0, at * y.strides[dim] * DTypeBytes(TypeOf(y))),
                    Operand(i)};
    OPWIRE_RETURN_IF_ERROR(PlanMove(call, move, plan));
    at += x.shape[dim];
  }
  return absl::OkStatus();
}

// Each axis of the result is two: the repeats, and x's.
Status PlanTile(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &y = call.result();
  Move move{TypeOf(x), {}, {}, {}, Result(0), Operand(0)};
  for (int a = 0; a < y.rank; ++a) {
    const int of_x = a - (y.rank - x.rank);
    const int64_t extent = of_x < 0 ? 1 : x.shape[of_x];
    move.extents.insert(move.extents.end(), {y.shape[a] / extent, extent});
    move.to_strides.insert(move.to_strides.end(), {y.strides[a] * extent, y.strides[a]});
    move.from_strides.insert(move.from_strides.end(), {0, of_x < 0 ? 0 : x.strides[of_x]});
  }
  return PlanMove(call, move, plan);
}

// ---- Rows by index

std::string IndexName(const opw_tensor& t) { return std::string(CodeName(TypeOf(t))); }

Status PlanRows(const Call& call, int dim, std::string_view body, Plan& plan) {
  const opw_tensor &x = call.operand(0), &y = call.result();
  const DType bits = BitsType(TypeOf(x));
  opw::shape::RowsParams p{};
  p.extent = x.shape[dim];
  p.inner = ops::ElementsFrom(x, dim + 1);
  p.outer = std::accumulate(x.shape, x.shape + dim, int64_t{1}, std::multiplies<>());
  p.count = y.elements / (p.outer * p.inner);
  const int64_t most = 16 / DTypeBytes(bits), items = p.inner % most == 0 ? most : 1;
  p.chunks = (p.inner + items - 1) / items;
  p.step = body == "SliceRows" ? call.attr(2).value.i : 1;
  Kernel* const f = call.code.Get({kFile,
                                   fmt::format("shape::{}<{}, {}, {}>", body, CodeName(bits),
                                               IndexName(call.operand(1)), items),
                                   "shape::RowsParams", kThreads});
  plan.Launch(
      f, {.blocks = Blocks(p.outer * p.count * p.chunks), .threads = kThreads}, p,
      {{&p.x, Operand(0)}, {&p.index, Operand(1)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  return absl::OkStatus();
}

Status PlanIndexSelect(const Call& call, Plan& plan) {
  return PlanRows(call, ops::Axis(call.attr(0).value.i, call.operand(0).rank), "SelectRows", plan);
}
Status PlanEmbedding(const Call& call, Plan& plan) { return PlanRows(call, 0, "SelectRows", plan); }
Status PlanSlice(const Call& call, Plan& plan) {
  return PlanRows(call, ops::Axis(call.attr(0).value.i, call.operand(0).rank), "SliceRows", plan);
}

Status PlanSliceUpdate(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &v = call.operand(1), &starts = call.operand(2),
                   &y = call.result();
  plan.Copy(Result(0), Operand(0), ops::BytesOf(y));
  if (v.elements == 0) return absl::OkStatus();
  opw::shape::UpdateParams p{};
  p.elements = v.elements;
  p.rank = y.rank;
  const opw_attr& steps = call.attr(0);
  std::vector<int64_t> strides = StridesOf(y);
  for (int a = 0; a < y.rank; ++a) {
    p.extents[a] = y.shape[a];
    p.lengths[a] = v.shape[a];
    p.steps[a] = steps.count == 0 ? 1 : steps.value.ints[a];
    p.strides[a] = y.strides[a];
    strides[static_cast<size_t>(a)] *= v.shape[a] == 1 ? 1 : p.steps[a];
  }
  p.axes = AxesOf<1, 16>(Merge(ShapeOf(v), {strides}));
  Kernel* const f = call.code.Get(
      {kFile,
       fmt::format("shape::UpdateSlice<{}, {}>", CodeName(BitsType(TypeOf(x))), IndexName(starts)),
       "shape::UpdateParams", kThreads});
  plan.Launch(
      f, {.blocks = Blocks(p.elements), .threads = kThreads}, p,
      {{&p.v, Operand(1)}, {&p.starts, Operand(2)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  return absl::OkStatus();
}

Status PlanIndexPut(const Call& call, Plan& plan) {
  const opw_tensor &src = call.operand(1), &y = call.result();
  plan.Copy(Result(0), Operand(0), ops::BytesOf(y));
  if (src.elements == 0) return absl::OkStatus();
  const ops::shape::PutPlaces places(call.c);
  const DType bits = BitsType(TypeOf(y));
  opw::shape::PutParams p{};
  p.axes = places.axes;
  p.outer = places.outer;
  p.extent = places.extent;
  p.inner = places.inner;
  p.puts = places.puts;
  // Where the places are as few as the slots that a hash needs, they are the slots.
  int64_t slots = static_cast<int64_t>(std::bit_ceil(2 * static_cast<uint64_t>(p.puts)));
  p.mask = static_cast<uint64_t>(slots) - 1;
  if (p.extent <= slots) {
    slots = p.extent;
    p.mask = 0;
  }
  const int64_t most = 16 / DTypeBytes(bits), items = p.inner % most == 0 ? most : 1;
  p.chunks = (p.inner + items - 1) / items;
  const int64_t table = plan.TakeWorkspace(16 * slots + 8),
                slot_of = plan.TakeWorkspace(8 * p.puts);
  plan.Zero(Workspace(table), 16 * slots + 8);
  std::vector<Field> fields = {{&p.src, Operand(1)},
                               {&p.y, Result(0)},
                               {&p.keys, Workspace(table)},
                               {&p.last, Workspace(table + 8 * slots)},
                               {&p.outside, Workspace(table + 16 * slots)},
                               {&p.slot_of, Workspace(slot_of)},
                               {&p.reporter, Reports()}};
  for (int a = 0; a < p.axes; ++a) {
    p.extents[a] = y.shape[places.dim + a];
    fields.push_back({&p.index[a], Operand(2 + static_cast<uint32_t>(a))});
  }
  const auto launch = [&](std::string body, int64_t items) {
    Kernel* const f = call.code.Get({kFile, std::move(body), "shape::PutParams", kThreads});
    plan.LaunchBytes(f, {.blocks = Blocks(items), .threads = kThreads}, &p, sizeof p, fields);
  };
  launch(fmt::format("shape::FindPutPlaces<{}>", IndexName(places.Index(call.c, 0))), p.puts);
  launch(fmt::format("shape::PutRows<{}, {}>", CodeName(bits), items), p.outer * p.puts * p.chunks);
  return absl::OkStatus();
}

// ---- Elements by index

Status PlanGather(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &index = call.operand(1), &y = call.result();
  const int dim = ops::Axis(call.attr(0).value.i, x.rank);
  opw::shape::GatherParams p{};
  p.elements = y.elements;
  p.extent = x.shape[dim];
  p.stride = x.strides[dim];
  std::vector<int64_t> strides = StridesOf(x);
  strides[static_cast<size_t>(dim)] = 0;
  p.axes = AxesOf<1, 16>(Merge(ShapeOf(y), {strides}));
  Kernel* const f = call.code.Get(
      {kFile, fmt::format("shape::Gather<{}, {}>", CodeName(BitsType(TypeOf(x))), IndexName(index)),
       "shape::GatherParams", kThreads});
  plan.Launch(
      f, {.blocks = Blocks(p.elements), .threads = kThreads}, p,
      {{&p.x, Operand(0)}, {&p.index, Operand(1)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  return absl::OkStatus();
}

Status PlanScatterAdd(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &index = call.operand(1), &src = call.operand(2),
                   &y = call.result();
  const DType type = TypeOf(x);
  const int dim = ops::Axis(call.attr(0).value.i, x.rank);
  const bool narrow = CodeName(type) != ComputeName(type);
  const Source sums = narrow ? Workspace(plan.TakeWorkspace(y.elements * 4)) : Result(0);
  const auto convert = [&](std::string_view body, Source from, Source to) -> Status {
    opw::shape::ConvertParams p{nullptr, nullptr, y.elements};
    Kernel* const f = call.code.Get({kFile, fmt::format("shape::{}<{}>", body, CodeName(type)),
                                     "shape::ConvertParams", kThreads});
    plan.Launch(f, {.blocks = Blocks(y.elements), .threads = kThreads}, p,
                {{&p.x, from}, {&p.y, to}});
    return absl::OkStatus();
  };
  if (narrow)
    OPWIRE_RETURN_IF_ERROR(convert("Widen", Operand(0), sums));
  else
    plan.Copy(sums, Operand(0), ops::BytesOf(y));
  if (index.elements > 0) {
    opw::shape::ScatterParams p{};
    p.length = index.shape[dim];
    p.columns = index.elements / p.length;
    p.index_stride = index.strides[dim];
    p.extent = x.shape[dim];
    p.src_stride = src.strides[dim];
    p.stride = y.strides[dim];
    std::vector<int64_t> extents = ShapeOf(index);
    extents[static_cast<size_t>(dim)] = 1;
    p.axes = AxesOf<3, 16>(Merge(extents, {StridesOf(index), StridesOf(src), StridesOf(y)}));
    Kernel* const f = call.code.Get(
        {kFile, fmt::format("shape::ScatterColumns<{}, {}>", CodeName(type), IndexName(index)),
         "shape::ScatterParams", kThreads});
    plan.Launch(
        f, {.blocks = Blocks(p.columns), .threads = kThreads}, p,
        {{&p.index, Operand(1)}, {&p.src, Operand(2)}, {&p.sums, sums}, {&p.reporter, Reports()}});
  }
  return narrow ? convert("Narrow", sums, Result(0)) : absl::OkStatus();
}

Status PlanChoose(const Call& call, Plan& plan) {
  const opw_tensor& y = call.result();
  const int64_t count = ops::ListSize(call.c, 1);
  Kernel* const f =
      call.code.Get({kFile,
                     fmt::format("shape::Choose<{}, {}>", CodeName(BitsType(TypeOf(y))),
                                 IndexName(call.operand(0))),
                     "shape::ChooseParams", kThreads});
  for (int64_t first = 0; first < count; first += opw::shape::kChooseMost) {
    opw::shape::ChooseParams p{};
    p.elements = y.elements;
    p.first = first;
    p.count = count;
    p.here = std::min<int64_t>(opw::shape::kChooseMost, count - first);
    std::vector<Field> fields = {
        {&p.choice, Operand(0)}, {&p.y, Result(0)}, {&p.reporter, Reports()}};
    for (int64_t i = 0; i < p.here; ++i)
      fields.push_back({&p.xs[i], Operand(call.c->starts[1] + static_cast<uint32_t>(first + i))});
    plan.LaunchBytes(f, {.blocks = Blocks(p.elements), .threads = kThreads}, &p, sizeof p, fields);
  }
  return absl::OkStatus();
}

Status PlanOneHot(const Call& call, Plan& plan) {
  const opw_tensor &index = call.operand(0), &y = call.result();
  opw::shape::OneHotParams p{};
  p.classes = y.shape[y.rank - 1];
  p.rows = index.elements;
  Kernel* const f = call.code.Get(
      {kFile, fmt::format("shape::OneHot<{}, {}>", CodeName(TypeOf(y)), IndexName(index)),
       "shape::OneHotParams", kThreads});
  plan.Launch(f, {.blocks = Blocks(y.elements), .threads = kThreads}, p,
              {{&p.index, Operand(0)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  return absl::OkStatus();
}

}  // namespace

void AddShapeGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const auto add = [&](std::string_view op, Status (*plan)(const Call&, Plan&),
                       bool strided = false) {
    AddGpu(table, code, op,
           {.flags = OPW_DETERMINISTIC | (strided ? 0u : uint32_t{OPW_CONTIGUOUS}), .plan = plan});
  };
  add("reshape", PlanReshape);
  add("recompute", PlanReshape);
  add("permute", PlanPermute, true);
  add("expand", PlanExpand, true);
  add("cat", PlanCat, true);
  add("tile", PlanTile, true);
  add("slice", PlanSlice);
  AddGpu(table, code, "slice_update",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE, .plan = PlanSliceUpdate});
  AddGpu(table, code, "index_put",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE, .plan = PlanIndexPut});
  add("index_select", PlanIndexSelect);
  add("embedding", PlanEmbedding);
  add("gather", PlanGather);
  add("scatter_add", PlanScatterAdd);
  add("choose", PlanChoose);
  add("one_hot", PlanOneHot);
  AddEmbeddingBackwardGpu(table, code);
}

}  // namespace opwire::gpu::shape

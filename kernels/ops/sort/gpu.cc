// sort, argsort and topk on GPUs: which form a call takes.
#include <fmt/format.h>

#include <bit>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/sort/gpu_params.h"
#include "kernels/ops/sort/sort.h"

namespace opwire::gpu::sort {
namespace {

constexpr std::string_view kFile = "kernels/ops/sort/gpu.cuh", kParams = "sort::SortParams";
constexpr int kThreads = 256, kSumThreads = 1024;
constexpr int64_t kShort = 2048;  // gpu.cuh's
constexpr int64_t kMatchTile = 256 * 64;

class Sorter {
 public:
  Sorter(const Call& call, Plan& plan, const ops::sort::Ordering& o)
      : call_(call),
        plan_(plan),
        type_(CodeName(ops::TypeOf(o.x))),
        bytes_(DTypeBytes(ops::TypeOf(o.x))),
        places_(o.extent <= UINT32_MAX ? 4 : 8),
        values_(o.values != nullptr) {
    p_.extent = p_.x_extent = o.extent;
    p_.inner = ops::ElementsFrom(o.x, o.dim + 1);
    p_.slices = o.x.elements / o.extent;
    p_.limit = o.count;
    p_.flip = o.descending ? ~0ull : 0;
  }

  Status Run() {
    if (p_.extent <= kShort) return Short(false, -1, -1);
    return p_.limit <= kShort ? Select() : Radix();
  }

 private:
  Status Launch(const std::string& body, const Grid& grid, std::initializer_list<Field> fields) {
    Kernel* const f = call_.code.Get({kFile, body, std::string(kParams), grid.threads});
    plan_.Launch(f, grid, p_, fields);
    return absl::OkStatus();
  }
  Source Values() const { return values_ ? Result(0) : Fixed(nullptr); }
  Source Indices() const { return Result(values_ ? 1 : 0); }

  // Of x, or of pairs in the workspace.
  Status Short(bool pairs, int64_t keys, int64_t places) {
    p_.width =
        static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, p_.extent))));
    p_.items = std::max(p_.width, 512);
    const Grid grid{
        .blocks = std::min<int64_t>(BlocksFor(p_.slices, p_.items / p_.width), INT32_MAX),
        .threads = kThreads};
    const std::string body =
        fmt::format("sort::SortShort<{}, {}, {}>", type_, BitsName(places_), pairs);
    if (!pairs)
      return Launch(body, grid,
                    {{&p_.x, Operand(0)}, {&p_.values, Values()}, {&p_.indices, Indices()}});
    return Launch(body, grid,
                  {{&p_.x, Operand(0)},
                   {&p_.keys, Workspace(keys)},
                   {&p_.places, Workspace(places)},
                   {&p_.values, Values()},
                   {&p_.indices, Indices()}});
  }

  void SetTiles(int64_t elements) { p_.tiles = BlocksFor(p_.extent, elements); }
  Grid TileGrid() const { return {.blocks = p_.slices * p_.tiles, .threads = kThreads}; }
  Status Sum(int64_t counts, int digits) {
    return Launch(fmt::format("sort::SumCounts<{}, {}>", BitsName(places_), digits),
                  {.blocks = p_.slices, .threads = kSumThreads}, {{&p_.counts, Workspace(counts)}});
  }
  int64_t TileElements() const { return kThreads * (bytes_ == 8 || places_ == 8 ? 8 : 16); }

  Status Radix() {
    SetTiles(TileElements());
    const int64_t limit = p_.limit,
                  counts = plan_.TakeWorkspace(p_.slices * 256 * p_.tiles * places_);
    int64_t keys[2], places[2];
    for (int64_t b = 0; b < std::min<int64_t>(2, bytes_ - 1); ++b) {
      keys[b] = plan_.TakeWorkspace(p_.slices * p_.extent * bytes_);
      places[b] = plan_.TakeWorkspace(p_.slices * p_.extent * places_);
    }
    for (int64_t pass = 0; pass < bytes_; ++pass) {
      const bool first = pass == 0, last = pass == bytes_ - 1;
      // Between the first and the last pass there are keys only, whatever they stand for.
      const std::string counted(first ? type_ : BitsName(bytes_)),
          moved(first || last ? type_ : BitsName(bytes_));
      const Source from_keys = first ? Fixed(nullptr) : Workspace(keys[(pass - 1) % 2]),
                   from_places = first ? Fixed(nullptr) : Workspace(places[(pass - 1) % 2]);
      p_.shift = static_cast<int>(pass) * 8;
      p_.limit = last ? limit : p_.extent;
      OPWIRE_RETURN_IF_ERROR(Launch(
          fmt::format("sort::CountDigits<{}, {}, {}, 256>", counted, BitsName(places_), first),
          TileGrid(),
          {{&p_.x, Operand(0)}, {&p_.keys, from_keys}, {&p_.counts, Workspace(counts)}}));
      OPWIRE_RETURN_IF_ERROR(Sum(counts, 256));
      OPWIRE_RETURN_IF_ERROR(
          Launch(fmt::format("sort::MovePairs<{}, {}, {}, {}, 256>", moved, BitsName(places_),
                             first, last),
                 TileGrid(),
                 {{&p_.x, Operand(0)},
                  {&p_.keys, from_keys},
                  {&p_.places, from_places},
                  {&p_.counts, Workspace(counts)},
                  {&p_.to_keys, last ? Fixed(nullptr) : Workspace(keys[pass % 2])},
                  {&p_.to_places, last ? Fixed(nullptr) : Workspace(places[pass % 2])},
                  {&p_.values, Values()},
                  {&p_.indices, Indices()}}));
    }
    return absl::OkStatus();
  }

  Status Select() {
    const int64_t bins = plan_.TakeWorkspace(p_.slices * 256 * 8),
                  picks = plan_.TakeWorkspace(p_.slices *
                                              static_cast<int64_t>(sizeof(opw::sort::Pick)));
    plan_.Zero(Workspace(bins), p_.slices * 256 * 8);
    SetTiles(kMatchTile);
    for (int64_t pass = bytes_ - 1; pass >= 0; --pass) {
      p_.shift = static_cast<int>(pass) * 8;
      OPWIRE_RETURN_IF_ERROR(Launch(
          fmt::format("sort::CountMatching<{}>", type_), TileGrid(),
          {{&p_.x, Operand(0)}, {&p_.counts, Workspace(bins)}, {&p_.picks, Workspace(picks)}}));
      const std::string body = fmt::format("sort::PickDigit<{}>", pass == bytes_ - 1);
      Kernel* const pick = call_.code.Get({kFile, body, "sort::PickParams", kThreads});
      const opw::sort::PickParams q{.bins = nullptr,
                                    .picks = nullptr,
                                    .slices = p_.slices,
                                    .wanted = p_.limit,
                                    .shift = p_.shift};
      plan_.Launch(pick, {.blocks = p_.slices, .threads = kThreads}, q,
                   {{&q.bins, Workspace(bins)}, {&q.picks, Workspace(picks)}});
    }
    SetTiles(TileElements());
    const int64_t counts = plan_.TakeWorkspace(p_.slices * 2 * p_.tiles * places_);
    const int64_t keys = plan_.TakeWorkspace(p_.slices * p_.limit * bytes_),
                  places = plan_.TakeWorkspace(p_.slices * p_.limit * places_);
    OPWIRE_RETURN_IF_ERROR(Launch(
        fmt::format("sort::CountDigits<{}, {}, true, 2>", type_, BitsName(places_)), TileGrid(),
        {{&p_.x, Operand(0)}, {&p_.counts, Workspace(counts)}, {&p_.picks, Workspace(picks)}}));
    OPWIRE_RETURN_IF_ERROR(Sum(counts, 2));
    OPWIRE_RETURN_IF_ERROR(
        Launch(fmt::format("sort::MovePairs<{}, {}, true, false, 2>", type_, BitsName(places_)),
               TileGrid(),
               {{&p_.x, Operand(0)},
                {&p_.counts, Workspace(counts)},
                {&p_.picks, Workspace(picks)},
                {&p_.to_keys, Workspace(keys)},
                {&p_.to_places, Workspace(places)}}));
    p_.extent = p_.limit;
    return Short(true, keys, places);
  }

  const Call& call_;
  Plan& plan_;
  const std::string_view type_;
  const int64_t bytes_, places_;  // of a key, and of a place
  const bool values_;
  opw::sort::SortParams p_{};
};

template <ops::sort::SortOp kOp>
Status PlanSort(const Call& call, Plan& plan) {
  return Sorter(call, plan, ops::sort::Ordering(call.c, kOp)).Run();
}

}  // namespace

void AddSortGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const auto add = [&](std::string_view op, Status (*plan)(const Call&, Plan&)) {
    AddGpu(table, code, op, {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = plan});
  };
  add("sort", PlanSort<ops::sort::SortOp::kSort>);
  add("argsort", PlanSort<ops::sort::SortOp::kArgsort>);
  add("topk", PlanSort<ops::sort::SortOp::kTopk>);
}

}  // namespace opwire::gpu::sort

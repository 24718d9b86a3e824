// Finds stages, groups, and an order of both.
#include "executor/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "executor/plan/horizontal.h"
#include "executor/plan/products.h"
#include "ir/scalar/scalar.h"

namespace opwire::executor {
namespace {

constexpr size_t kMaxNodes = 64;  // of a group
constexpr size_t kMaxEnds = 8;    // the most reasons that are kept
constexpr int64_t kShortLine =
    128;  // elements: kernels copy shorter ones before they compute with them

// An edge from an earlier node to a later one, which must run after it.
struct Edge {
  uint32_t from, to;
  bool joins;  // they can be in one group
};

using Place = fused::RowProgram::Place;
using fused::RowProgram;

class Scheduler {
 public:
  Scheduler(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser)
      : w_(what),
        fuser_(fuser),
        nodes_(static_cast<uint32_t>(what.f.nodes.size())),
        producer_(what.values.size(), -1),
        joinable_(nodes_),
        returned_(what.values.size()) {
    for (uint32_t n = 0; n < nodes_; ++n) {
      for (size_t r = 0; r < w_.f.nodes[n].results.size(); ++r)
        producer_[w_.values.first_result[n] + r] = static_cast<int32_t>(n);
    }
    for (const Result& r : w_.f.results) returned_[static_cast<size_t>(r.value)] = true;
    std::vector<bool> read = returned_;
    for (const Node& node : w_.f.nodes) {
      for (const ValueId v : node.operands) {
        if (v != kAbsent) read[static_cast<size_t>(v)] = true;
      }
    }
    // An unused value cannot be an output of a group.
    for (uint32_t n = 0; n < nodes_; ++n) {
      reduction_.push_back(ReductionOf(n));
      joinable_[n] = fusable[n] && (IsElementwise(RowOf(n)) || reduction_[n] || Permutes(n)) &&
                     read[ResultOf(n)] && AllDense(n);
    }
  }

  Schedule Make() {
    if (std::ranges::count(joinable_, true) >= 2) {
      FindDomains();
      FindEdges();
      SetStages();
      FormGroups();
    }
    Order();
    for (const Unit& unit : out_.units) {
      if (unit.group < 0) ExplainAlone(unit.node);
    }
    std::ranges::sort(out_.lone, {}, &LoneNode::node);
    return std::move(out_);
  }

 private:
  const OpDef& RowOf(uint32_t n) const { return *w_.typing.nodes[n].row; }
  size_t ResultOf(uint32_t n) const { return w_.values.first_result[n]; }
  const TensorType& TypeOf(ValueId v) const { return *w_.values.types[static_cast<size_t>(v)]; }
  bool SameShape(ValueId v, uint32_t n) const {
    return TypeOf(v).shape == w_.f.nodes[n].results[0].shape;
  }
  bool AllDense(uint32_t n) const {
    const auto dense = [&](ValueId v) { return TypeOf(v).encoding == Encoding::kDense; };
    return std::ranges::all_of(w_.f.nodes[n].operands, dense) &&
           dense(static_cast<ValueId>(ResultOf(n)));
  }
  // Whether a node is a permutation, but not a view.
  bool Permutes(uint32_t n) const {
    return w_.f.nodes[n].op == "permute" && w_.views.kinds[n] == ViewKind::kNone &&
           w_.f.nodes[n].results[0].shape.size() > 1;
  }
  // Returns by axis of a permutation's result the axis of its operand.
  AxisOrder OrderOf(uint32_t n) const {
    const Ints& dims = std::get<Ints>(w_.typing.nodes[n].attrs[0]);
    AxisOrder order;
    for (const int64_t d : dims)
      order.push_back(static_cast<uint8_t>(d < 0 ? d + static_cast<int64_t>(dims.size()) : d));
    return order;
  }
  // Whether n reads as many elements of v as it works on.
  bool ReadsAll(ValueId v, uint32_t n) const { return Permutes(n) || SameShape(v, n); }
  // How a node reduces: along the last axis only, of more than one element, or along axes before
  // the last.
  struct NodeReduction {
    fused::ReduceKind kind;
    uint32_t
        columns;  // a bit for each axis before the last, as in a ColumnProgram; 0: the last axis
  };
  std::optional<NodeReduction> ReductionOf(uint32_t n) const {
    const Node& node = w_.f.nodes[n];
    const auto kind = fused::ReduceKindOf(node.op);
    if (!kind) return std::nullopt;
    const std::vector<Dim>& shape = TypeOf(node.operands[0]).shape;
    const auto rank = static_cast<int64_t>(shape.size());
    uint32_t reductions = 0;
    const Ints& dims =
        std::get<Ints>(w_.typing.nodes[n].attrs[static_cast<size_t>(RowOf(n).FindAttr("dims"))]);
    if (rank == 0) return std::nullopt;
    const uint32_t last = 1u << (rank - 1);
    if (dims.empty()) reductions = 2 * last - 1;
    for (const int64_t d : dims) reductions |= 1u << (d < 0 ? d + rank : d);
    // An extent of 1 that stays 1 would not distinguish the shapes.
    if (reductions == last)
      return fuser_.HasRows() && node.results[0].shape != shape
                 ? std::optional(NodeReduction{*kind, 0})
                 : std::nullopt;
    if ((reductions & last) != 0 || !fuser_.HasColumns()) return std::nullopt;
    const bool leading = (reductions & (reductions + 1)) == 0;
    return leading || !LeavesShortLines(shape, reductions)
               ? std::optional(NodeReduction{*kind, reductions})
               : std::nullopt;
  }
  // Whether the axes after the reduced ones are known to have few elements. Then, after axes that
  // stay, the kernel would read short pieces.
  bool LeavesShortLines(const std::vector<Dim>& shape, uint32_t reductions) const {
    int64_t line = 1;
    for (auto a = static_cast<size_t>(std::bit_width(reductions));
         a < shape.size() && line < kShortLine; ++a) {
      line = w_.dims.IsConstant(shape[a]) ? line * w_.dims.ConstantValue(shape[a]) : kShortLine;
    }
    return line < kShortLine;
  }
  bool ReducesRows(uint32_t n) const { return reduction_[n] && reduction_[n]->columns == 0; }
  bool ReducesColumns(uint32_t n) const { return reduction_[n] && reduction_[n]->columns > 0; }

  // Finds the shape on which a node works, row by row, and the kind of its result relative to that
  // shape. Nodes of one domain can be in one group.
  void FindDomains() {
    place_.assign(nodes_, RowProgram::kElements);
    domain_.assign(nodes_, kAbsent);
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!joinable_[n]) continue;
      const Node& node = w_.f.nodes[n];
      if (ReducesColumns(n)) {
        domain_[n] = node.operands[0];
        place_[n] = RowProgram::kColumn;
        continue;
      }
      if (ReducesRows(n)) {
        domain_[n] = node.operands[0];
        place_[n] = std::get<bool>(
                        w_.typing.nodes[n].attrs[static_cast<size_t>(RowOf(n).FindAttr("keepdim"))])
                        ? RowProgram::kRow
                        : RowProgram::kShort;
        if (place_[n] == RowProgram::kRow) one_ = node.results[0].shape.back();
        continue;
      }
      domain_[n] = static_cast<ValueId>(ResultOf(n));
      for (const ValueId v : node.operands) {
        const int32_t p = producer_[static_cast<size_t>(v)];
        if (p < 0 || !joinable_[static_cast<size_t>(p)] || !IsOfRow(static_cast<uint32_t>(p)) ||
            !SameShape(v, n))
          continue;
        domain_[n] = domain_[static_cast<size_t>(p)];
        place_[n] = place_[static_cast<size_t>(p)];
        break;
      }
    }
  }
  bool IsOfRow(uint32_t n) const {
    return place_[n] == RowProgram::kRow || place_[n] == RowProgram::kShort;
  }
  bool SameDomain(uint32_t a, uint32_t b) const {
    return joinable_[a] && joinable_[b] &&
           (domain_[a] == domain_[b] || TypeOf(domain_[a]).shape == TypeOf(domain_[b]).shape);
  }
  // Whether `to` and `from` can be in one group in which `to` reads v, a value of `from`. False if
  // one of them is a permutation: JoinPermutations decides for those.
  bool Joins(uint32_t from, uint32_t to, ValueId v) const {
    if (Permutes(from) || Permutes(to) || !SameDomain(from, to) || ReducesColumns(from))
      return false;
    if (reduction_[to]) return place_[from] == RowProgram::kElements;
    if (place_[to] == RowProgram::kElements && place_[from] == RowProgram::kRow) return true;
    return place_[to] == place_[from] && SameShape(v, to);
  }
  // Whether n, which reads v, can be in one group with `to`, whose result takes v's place.
  bool JoinsReplacement(uint32_t n, uint32_t to, ValueId v) const {
    if (Permutes(n) || Permutes(to) || !SameDomain(n, to)) return false;
    if (reduction_[n])
      return place_[to] == RowProgram::kElements && w_.views.root[static_cast<size_t>(v)] == v;
    return place_[n] == place_[to] && !reduction_[to] &&
           SameShape(static_cast<ValueId>(ResultOf(n)), to);
  }

  // Whether v is a number that groups take as an argument.
  bool IsNumber(ValueId v) const {
    const int32_t n = producer_[static_cast<size_t>(v)];
    return n >= 0 && w_.f.nodes[static_cast<size_t>(n)].op == "full" &&
           w_.f.nodes[static_cast<size_t>(n)].pin.empty();
  }

  void FindEdges() {
    std::vector<int32_t> replaced_at(w_.f.params.size(),
                                     -1);  // by parameter: the node whose result takes its place
    for (size_t r = 0; r < w_.inout_of_result.size(); ++r) {
      if (w_.inout_of_result[r] >= 0)
        replaced_at[static_cast<size_t>(w_.inout_of_result[r])] = producer_[static_cast<size_t>(
            w_.views.root[static_cast<size_t>(w_.f.results[r].value)])];
    }
    std::vector<size_t> permuting;  // the edges from or to a permutation
    int32_t last_effect = -1;
    for (uint32_t n = 0; n < nodes_; ++n) {
      const Node& node = w_.f.nodes[n];
      for (const ValueId v : node.operands) {
        if (v == kAbsent) continue;
        if (const int32_t p = producer_[static_cast<size_t>(v)];
            p >= 0 && !(joinable_[n] && IsNumber(v))) {
          const auto from = static_cast<uint32_t>(p);
          edges_.push_back({from, n, Joins(from, n, v)});
          if (joinable_[from] && joinable_[n] && (Permutes(from) || Permutes(n)) && ReadsAll(v, n))
            permuting.push_back(edges_.size() - 1);
        }
        // It must run before the value is overwritten.
        if (w_.views.kinds[n] == ViewKind::kOf) continue;  // which reads nothing
        const auto root = static_cast<size_t>(w_.views.root[static_cast<size_t>(v)]);
        if (root >= replaced_at.size() || replaced_at[root] <= static_cast<int32_t>(n)) continue;
        const auto to = static_cast<uint32_t>(replaced_at[root]);
        edges_.push_back({n, to, JoinsReplacement(n, to, v)});
      }
      if (RowOf(n).effects == Effects::kPure && RowOf(n).control == Control::kNone) continue;
      if (last_effect >= 0) edges_.push_back({static_cast<uint32_t>(last_effect), n, false});
      last_effect = static_cast<int32_t>(n);
    }
    if (!permuting.empty()) JoinPermutations(permuting);
    std::ranges::stable_sort(edges_, {}, &Edge::to);
  }
  // Finds which of these edges join. All tensors of the joined nodes must have one of two axes as
  // their last. There must be no reduction, because a reduction allows only its own order of axes.
  void JoinPermutations(std::span<const size_t> permuting) {
    std::vector<size_t> ranks;
    for (uint32_t n = 0; n < nodes_; ++n)
      ranks.push_back(w_.f.nodes[n].results.empty() ? 0 : w_.f.nodes[n].results[0].shape.size());
    orders_.emplace(ranks);
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!joinable_[n]) continue;
      if (Permutes(n)) orders_->SetPermutes(n, OrderOf(n));
      if (reduction_[n]) orders_->SetReduces(n);
    }
    for (const Edge& e : edges_) {
      if (e.joins) orders_->Unite(e.from, e.to);
    }
    for (const size_t i : permuting) {
      Edge& e = edges_[i];
      const AxisOrders::Outcome outcome =
          orders_->Join(e.from, e.to, Permutes(e.to) ? OrderOf(e.to) : AxisOrder());
      e.joins = outcome == AxisOrders::kJoined;
      const auto why = outcome == AxisOrders::kReductions
                           ? "which cannot be in a group with reductions"
                       : outcome == AxisOrders::kThirdAxis ? "which is along a third axis"
                                                           : "which has another order of axes";
      if (!e.joins) why_apart_.emplace(Permutes(e.to) ? e.to : e.from, why);
    }
  }

  void SetStages() {
    stage_.assign(nodes_, 0);
    for (const Edge& e : edges_) stage_[e.to] = std::max(stage_[e.to], stage_[e.from] + !e.joins);
    // A value that only a later group reads is computed in that group, if that keeps no more in
    // memory. First several nodes together, then one by one.
    by_from_ = edges_;
    std::ranges::stable_sort(by_from_, std::ranges::greater(), &Edge::from);
    SinkTogether();
    EachSinkable(stage_, [&](uint32_t n, uint32_t stage) {
      if (BytesRead(n) <= BytesOf(ResultOf(n))) stage_[n] = stage;
    });
  }
  int64_t BytesOf(size_t v) const {
    return DTypeBytes(w_.values.types[v]->dtype);
  }  // of an element
  int64_t BytesRead(uint32_t n) const {
    int64_t bytes = 0;
    for (const ValueId v : w_.f.nodes[n].operands)
      bytes += ReadsAll(v, n) ? BytesOf(static_cast<size_t>(v)) : 0;
    return bytes;
  }
  // Visits nodes from the last to the first. All readers of a visited node are in one stage of
  // `stages` and can be in one group with it.
  template <typename Visit>
  void EachSinkable(const std::vector<uint32_t>& stages, const Visit& visit) const {
    for (size_t at = 0; at < by_from_.size();) {
      const uint32_t n = by_from_[at].from, stage = stages[by_from_[at].to];
      bool all_join =
          joinable_[n] && !reduction_[n] && !returned_[ResultOf(n)] && stage != stages[n];
      for (; at < by_from_.size() && by_from_[at].from == n; ++at)
        all_join = all_join && by_from_[at].joins && stages[by_from_[at].to] == stage;
      if (all_join) visit(n, stage);
    }
  }
  // Moves nodes to a later group if it alone reads their results. Together they must not read more
  // bytes per element than they pass to it. An example is the derivative of an activation: only the
  // activation's operand is kept until the backward pass.
  void SinkTogether() {
    std::vector<uint32_t> sunk = stage_;
    component_.resize(nodes_);
    std::iota(component_.begin(), component_.end(), 0u);
    EachSinkable(sunk, [&](uint32_t n, uint32_t stage) { sunk[n] = stage; });
    const auto moves = [&](uint32_t n) { return sunk[n] != stage_[n]; };
    for (const Edge& e : edges_) {
      if (e.joins && moves(e.from) && moves(e.to) && sunk[e.from] == sunk[e.to])
        component_[Find(e.to)] = Find(e.from);
    }
    std::vector<int64_t> keeps(
        nodes_);  // by component: bytes per element that it reads, minus those that it passes on
    absl::flat_hash_set<std::pair<uint32_t, ValueId>> counted;
    std::vector<bool> handed(nodes_);
    for (const Edge& e : edges_) {
      if (!moves(e.from) || handed[e.from] || (moves(e.to) && Find(e.from) == Find(e.to))) continue;
      handed[e.from] = true;
      keeps[Find(e.from)] -= BytesOf(ResultOf(e.from));
    }
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!moves(n)) continue;
      for (const ValueId v : w_.f.nodes[n].operands) {
        const int32_t p = producer_[static_cast<size_t>(v)];
        if (!ReadsAll(v, n) || IsNumber(v) ||
            (p >= 0 && moves(static_cast<uint32_t>(p)) &&
             Find(static_cast<uint32_t>(p)) == Find(n)))
          continue;
        if (counted.insert({Find(n), v}).second) keeps[Find(n)] += BytesOf(static_cast<size_t>(v));
      }
    }
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (moves(n) && keeps[Find(n)] <= 0) stage_[n] = sunk[n];
    }
  }

  uint32_t Find(uint32_t n) {
    while (component_[n] != n) n = component_[n] = component_[component_[n]];
    return n;
  }

  void FormGroups() {
    component_.resize(nodes_);
    std::iota(component_.begin(), component_.end(), 0u);
    for (const Edge& e : edges_) {
      if (e.joins && stage_[e.from] == stage_[e.to]) component_[Find(e.to)] = Find(e.from);
    }
    JoinColumns();
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> members;
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (joinable_[n]) members[Find(n)].push_back(n);
    }
    group_of_.assign(nodes_, -1);
    peeled_.assign(nodes_, false);
    for (uint32_t n = 0; n < nodes_; ++n) {
      const auto found = members.find(n);
      if (found == members.end()) continue;
      for (const std::vector<uint32_t>& nodes : OneReductionEach(found->second)) {
        if (nodes.size() > 1) Split(nodes);
      }
    }
  }
  // Joins column reductions that read the same tensor of their shape, or whose elements do, so that
  // they read it once. Not if rows are reduced there too. No path leads from one component of a
  // stage to another, so that joining two is safe.
  void JoinColumns() {
    std::vector<bool> reduces_columns(nodes_);  // by component
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (joinable_[n] && ReducesColumns(n)) reduces_columns[Find(n)] = true;
    }
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (joinable_[n] && (ReducesRows(n) || IsOfRow(n))) reduces_columns[Find(n)] = false;
    }
    absl::flat_hash_map<std::pair<uint32_t, ValueId>, uint32_t> readers;  // by stage and value
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!joinable_[n] || !reduces_columns[Find(n)]) continue;
      for (const ValueId v : w_.f.nodes[n].operands) {
        if (IsNumber(v) || TypeOf(v).shape != TypeOf(domain_[n]).shape) continue;
        const uint32_t other = readers.try_emplace({stage_[n], v}, n).first->second;
        if (!SameDomain(n, other)) continue;
        const uint32_t root = Find(other);
        component_[Find(n)] = root;
        reduces_columns[root] = true;
      }
    }
  }
  // Splits a component's nodes by their reductions, because a kernel reduces rows, or the same
  // leading axes. Nodes that lead only to another kind of reduction go with it if that moves no
  // more data than passing on their result. All of the reductions are sinks, so that no path leads
  // back.
  std::vector<std::vector<uint32_t>> OneReductionEach(std::vector<uint32_t> nodes) {
    std::vector<std::vector<uint32_t>> out;
    const auto first = std::ranges::find_if(nodes, [&](uint32_t n) { return ReducesColumns(n); });
    if (first != nodes.end()) {
      const uint32_t own =
          std::ranges::any_of(nodes, [&](uint32_t n) { return ReducesRows(n) || IsOfRow(n); })
              ? 0
              : reduction_[*first]->columns;
      std::vector<uint32_t> others;
      for (const uint32_t n : nodes) {
        if (ReducesColumns(n) && reduction_[n]->columns != own &&
            std::ranges::find(others, reduction_[n]->columns) == others.end())
          others.push_back(reduction_[n]->columns);
      }
      for (const uint32_t columns : others) out.push_back(Peel(nodes, columns));
    }
    out.push_back(std::move(nodes));
    return out;
  }
  // Takes the reductions of these axes out of `nodes`, with the nodes that lead only to them.
  std::vector<uint32_t> Peel(std::vector<uint32_t>& nodes, uint32_t columns) {
    if (readers_begin_.empty()) IndexReaders();
    absl::flat_hash_set<uint32_t> taken;
    const auto reads_of = [&](uint32_t n) {
      return std::span(readers_).subspan(readers_begin_[n],
                                         readers_begin_[n + 1] - readers_begin_[n]);
    };
    for (size_t i = nodes.size(); i-- > 0;) {
      const uint32_t n = nodes[i];
      if (ReducesColumns(n)) {
        if (reduction_[n]->columns == columns) taken.insert(n);
        continue;
      }
      if (reduction_[n] || returned_[ResultOf(n)] || IsOfRow(n) ||
          !std::ranges::all_of(reads_of(n), [&](uint32_t r) { return taken.contains(r); }))
        continue;
      // A value that would otherwise not be in memory is written and read for this.
      int64_t moved = 0;
      for (const ValueId v : w_.f.nodes[n].operands) {
        if (!SameShape(v, n) || IsNumber(v)) continue;
        const int32_t p = producer_[static_cast<size_t>(v)];
        const auto made_here = [&](uint32_t from) {
          return std::ranges::binary_search(nodes, from) && !returned_[static_cast<size_t>(v)] &&
                 std::ranges::all_of(reads_of(from), [&](uint32_t r) {
                   return r == n || (!taken.contains(r) && std::ranges::binary_search(nodes, r));
                 });
        };
        moved += BytesOf(static_cast<size_t>(v)) *
                 (p >= 0 && made_here(static_cast<uint32_t>(p)) ? 2 : 1);
      }
      if (moved <= 2 * BytesOf(ResultOf(n))) taken.insert(n);
    }
    std::vector<uint32_t> out;
    for (const uint32_t n : nodes) {
      if (taken.contains(n)) out.push_back(n), peeled_[n] = true;
    }
    std::erase_if(nodes, [&](uint32_t n) { return taken.contains(n); });
    return out;
  }

  // Makes groups of a component's nodes, in their order, each as large as the limits allow.
  void Split(std::span<const uint32_t> nodes) {
    for (size_t begin = 0; begin < nodes.size();) {
      size_t count = std::min(kMaxNodes, nodes.size() - begin);
      while (count > 1 && !TryGroup(nodes.subspan(begin, count), begin + count < nodes.size()))
        count = count > 8 ? count * 3 / 4 : count - 1;
      begin += count;
    }
  }

  // Returns false if the nodes exceed the limits of one kernel.
  bool TryGroup(std::span<const uint32_t> nodes, bool goes_on) {
    const auto number = static_cast<int32_t>(out_.groups.size());
    FusedGroup group;
    group.nodes.assign(nodes.begin(), nodes.end());
    // Without reductions, values of rows are elements of another shape.
    const auto of_columns =
        std::ranges::find_if(nodes, [&](uint32_t n) { return ReducesColumns(n); });
    const bool columns = of_columns != nodes.end();
    const bool rows = !columns && std::ranges::any_of(nodes, [&](uint32_t n) {
      return ReducesRows(n) || place_[n] != place_[nodes[0]];
    });
    // Also if the permutation between the two orders is in another group.
    const bool permutes =
        !rows && !columns && orders_ && std::ranges::any_of(nodes, [&](uint32_t n) {
          return Permutes(n) || orders_->Of(n) != orders_->Of(nodes[0]);
        });
    RowProgram program;
    absl::flat_hash_map<std::tuple<ValueId, Place, AxisOrder>, int>
        known;  // the values that are read
    absl::flat_hash_map<ValueId, int> made;
    const auto value_of = [&](ValueId v, Place place, const AxisOrder& order) {
      if (const auto found = made.find(v); found != made.end()) return found->second;
      const auto [it, is_new] = known.try_emplace({v, place, order}, -1);
      if (!is_new) return it->second;
      if (IsNumber(v)) {
        it->second = program.AddArgument(TypeOf(v).dtype);
        group.arguments.push_back(ArgumentOf(v));
      } else {
        it->second = program.AddInput(TypeOf(v).dtype, place);
        group.inputs.push_back(v);
        if (permutes) group.input_orders.push_back(order);
      }
      return it->second;
    };
    for (const uint32_t n : nodes) {
      const Node& node = w_.f.nodes[n];
      const OpDef& row = RowOf(n);
      std::vector<int> operands;
      for (const ValueId v : node.operands)
        operands.push_back(value_of(v, rows ? PlaceOf(v, n) : RowProgram::kElements,
                                    permutes ? OrderRead(v, n) : AxisOrder()));
      int value = operands[0];
      if (ReducesRows(n)) {
        value = program.Reduce(reduction_[n]->kind, value);
      } else if (!row.body.Empty()) {
        const int saturate = row.FindAttr("saturate");
        const std::vector<int> unread(row.attrs.size(), -1);
        const auto appended = program.Append(
            row, operands, unread, node.results[0].dtype,
            saturate >= 0 &&
                std::get<bool>(w_.typing.nodes[n].attrs[static_cast<size_t>(saturate)]));
        if (!appended.ok()) return false;
        value = *appended;
      }
      made[static_cast<ValueId>(ResultOf(n))] = value;
    }
    for (const uint32_t n : nodes) group_of_[n] = number;
    const std::vector<bool> leaves = LeaveGroup(nodes, number, group.ends);
    std::vector<std::optional<fused::ReduceKind>> reductions;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!leaves[i]) continue;
      group.outputs.push_back(static_cast<ValueId>(ResultOf(nodes[i])));
      if (permutes) group.output_orders.push_back(orders_->Of(nodes[i]));
      program.AddOutput(made.at(group.outputs.back()),
                        rows || columns ? place_[nodes[i]] : RowProgram::kElements);
      reductions.push_back(ReducesColumns(nodes[i]) ? std::optional(reduction_[nodes[i]]->kind)
                                                    : std::nullopt);
    }
    if (rows || columns) {
      group.input_places = program.operand_places();
      group.output_places = program.result_places();
    }
    if (program.scalar().Check().ok() &&
        (!(rows || columns) || SetShape(program, group, domain_[nodes[0]]))) {
      group.kernel = rows ? fuser_.GetRows(program)
                     : columns
                         ? fuser_.GetColumns({program.scalar(), std::move(reductions),
                                              reduction_[*of_columns]->columns, program.shape_of()})
                         : fuser_.Get(program.scalar());
    }
    if (!group.kernel) {
      for (const uint32_t n : nodes) group_of_[n] = -1;
      return false;
    }
    if (permutes) ChooseShape(group);
    if (!rows && !columns && !permutes)
      group.program = std::make_shared<const fused::ScalarProgram>(program.scalar());
    if (goes_on)
      group.ends.push_back(
          fmt::format("{} nodes are as many as one kernel takes here", nodes.size()));
    for (const ValueId v : group.inputs) Explain(group, v);
    out_.groups.push_back(std::move(group));
    return true;
  }
  // Returns by axis of v the axis of the group in which node n reads it.
  AxisOrder OrderRead(ValueId v, uint32_t n) {
    const AxisOrder own = orders_->Of(n);
    const size_t rank = TypeOf(v).shape.size();
    AxisOrder out(rank);
    if (Permutes(n)) {
      const AxisOrder of_operand = OrderOf(n);
      for (size_t a = 0; a < rank; ++a) out[of_operand[a]] = own[a];
    } else {
      std::copy(own.end() - static_cast<int64_t>(rank), own.end(), out.begin());
    }
    return out;
  }
  // Gives a permuting group the shape of the tensors with the most bytes along their last axis.
  // Prefers results to operands.
  void ChooseShape(FusedGroup& group) const {
    std::vector<Dim> extents(group.output_orders[0].size());
    for (size_t a = 0; a < extents.size(); ++a)
      extents[group.output_orders[0][a]] = TypeOf(group.outputs[0]).shape[a];
    absl::flat_hash_map<uint8_t, int64_t> bytes;  // an element, by last axis
    const AxisOrder* shape = nullptr;
    int64_t most = 0;
    const auto each = [&](std::span<const ValueId> values, std::span<const AxisOrder> orders,
                          const auto& visit) {
      for (size_t i = 0; i < values.size(); ++i) {
        const std::vector<Dim>& own = TypeOf(values[i]).shape;
        bool whole = own.size() == extents.size();
        for (size_t a = 0; whole && a < own.size(); ++a) whole = own[a] == extents[orders[i][a]];
        if (whole) visit(orders[i], BytesOf(static_cast<size_t>(values[i])));
      }
    };
    const auto count = [&](const AxisOrder& order, int64_t of_one) {
      bytes[order.back()] += of_one;
    };
    const auto choose = [&](const AxisOrder& order, int64_t) {
      if (bytes[order.back()] > most) most = bytes[order.back()], shape = &order;
    };
    each(group.outputs, group.output_orders, count);
    each(group.inputs, group.input_orders, count);
    each(group.outputs, group.output_orders, choose);
    each(group.inputs, group.input_orders, choose);
    AxisOrder in_shape(shape->size());
    for (size_t a = 0; a < shape->size(); ++a) in_shape[(*shape)[a]] = static_cast<uint8_t>(a);
    for (std::vector<AxisOrder>* orders : {&group.input_orders, &group.output_orders}) {
      for (AxisOrder& order : *orders) {
        for (uint8_t& a : order) a = in_shape[a];
      }
    }
  }
  // The kind of an operand of node n relative to the rows of its domain.
  Place PlaceOf(ValueId v, uint32_t n) const {
    if (place_[n] != RowProgram::kElements && !ReducesRows(n)) return place_[n];
    const std::vector<Dim>& shape = TypeOf(v).shape;
    return one_ && !shape.empty() && shape.back() == *one_ &&
                   TypeOf(domain_[n]).shape.back() != *one_
               ? RowProgram::kRow
               : RowProgram::kElements;
  }
  // Notes which tensor has the shape of the rows; returns false if no tensor has.
  bool SetShape(RowProgram& program, const FusedGroup& group, ValueId domain) const {
    const auto has = [&](ValueId v, Place place) {
      return place == RowProgram::kElements && TypeOf(v).shape == TypeOf(domain).shape;
    };
    for (size_t i = 0; i < group.inputs.size() + group.outputs.size(); ++i) {
      const size_t o = i - group.inputs.size();
      if (!(i < group.inputs.size() ? has(group.inputs[i], group.input_places[i])
                                    : has(group.outputs[o], group.output_places[o])))
        continue;
      program.SetShapeOf(static_cast<int>(i));
      return true;
    }
    return false;
  }

  // Returns which of the nodes' values are read outside the group.
  std::vector<bool> LeaveGroup(std::span<const uint32_t> nodes, int32_t group,
                               std::vector<std::string>& ends) {
    if (readers_begin_.empty()) IndexReaders();
    std::vector<bool> out;
    for (const uint32_t n : nodes) {
      const size_t v = ResultOf(n);
      bool leaves = returned_[v];
      if (leaves && ends.size() < kMaxEnds)
        ends.push_back(fmt::format("{} is a result", ValueName(w_.f, static_cast<ValueId>(v))));
      for (uint32_t i = readers_begin_[n]; i < readers_begin_[n + 1]; ++i) {
        const uint32_t reader = readers_[i];
        if (group_of_[reader] == group) continue;
        if (!leaves) ExplainTo(n, reader, ends);
        leaves = true;
      }
      out.push_back(leaves);
    }
    return out;
  }
  // The reason between a node of a group and one of its readers or operands. `why`: the reason if
  // both could be in one group.
  std::string_view WhyApart(uint32_t n, uint32_t other, std::string_view why) {
    if (!joinable_[other]) return WhyOfNone(other);
    if (const auto found = why_apart_.find(Permutes(other) ? other : n);
        found != why_apart_.end() && (Permutes(n) || Permutes(other)))
      return found->second;
    if (!(orders_ && orders_->AreJoined(n, other)) && !SameDomain(n, other))
      return "which has another shape";
    return peeled_[other] ? "which reduces other axes" : why;
  }
  // The reason of a node that cannot be joined to any.
  std::string_view WhyOfNone(uint32_t n) const {
    if (fused::ReduceKindOf(w_.f.nodes[n].op) && fuser_.HasRows() && !reduction_[n]) {
      return fuser_.HasColumns() ? "which reduces the last axis and others, or leaves short lines"
                                 : "which does not reduce the last axis alone";
    }
    return IsElementwise(RowOf(n)) || reduction_[n] ? "which has a variant of its own"
                                                    : "which is not elementwise";
  }
  void Explain(FusedGroup& group, ValueId input) { ExplainFrom(group.nodes[0], input, group.ends); }
  void ExplainFrom(uint32_t n, ValueId input, std::vector<std::string>& ends) {
    const int32_t p = producer_[static_cast<size_t>(input)];
    if (p < 0 || ends.size() >= kMaxEnds) return;
    ends.push_back(fmt::format("{} comes from {}, {}", ValueName(w_.f, input),
                               w_.f.nodes[static_cast<size_t>(p)].op,
                               WhyApart(n, static_cast<uint32_t>(p), "for which others wait")));
  }
  // Explains why a node that groups could take in is in no group. The user knows the reason for a
  // pinned node.
  void ExplainAlone(uint32_t n) {
    const Node& node = w_.f.nodes[n];
    if (!node.pin.empty() || w_.views.kinds[n] != ViewKind::kNone || node.operands.empty() ||
        !(IsElementwise(RowOf(n)) || fused::ReduceKindOf(node.op)))
      return;
    LoneNode lone{.node = n, .ends = {}};
    if (readers_begin_.empty()) IndexReaders();
    const auto readers =
        std::span(readers_).subspan(readers_begin_[n], readers_begin_[n + 1] - readers_begin_[n]);
    if (readers.empty() && !returned_[ResultOf(n)]) return;
    const auto made = [&](ValueId v) {
      return v != kAbsent && producer_[static_cast<size_t>(v)] >= 0 && !IsNumber(v);
    };
    if (joinable_[n]) {
      for (const uint32_t reader : readers) ExplainTo(n, reader, lone.ends);
      for (const ValueId v : node.operands) {
        if (made(v)) ExplainFrom(n, v, lone.ends);
      }
    } else if (!readers.empty() || std::ranges::any_of(node.operands, made)) {
      lone.ends.push_back(fmt::format("{} comes from {}, {}",
                                      ValueName(w_.f, static_cast<ValueId>(ResultOf(n))), node.op,
                                      WhyOfNone(n)));
    }
    // A reader that reads it twice is reported once.
    lone.ends.erase(std::unique(lone.ends.begin(), lone.ends.end()), lone.ends.end());
    if (!lone.ends.empty()) out_.lone.push_back(std::move(lone));
  }
  void ExplainTo(uint32_t n, uint32_t reader, std::vector<std::string>& ends) {
    if (ends.size() >= kMaxEnds) return;
    ends.push_back(
        fmt::format("{} goes to {}, {}", ValueName(w_.f, static_cast<ValueId>(ResultOf(n))),
                    w_.f.nodes[reader].op,
                    ReducesColumns(n) ? "which waits for whole columns"
                                      : WhyApart(n, reader, "which also waits for others")));
  }

  // By node: the readers of its first result.
  void IndexReaders() {
    readers_begin_.assign(nodes_ + 1, 0);
    const auto each = [&](const auto& visit) {
      for (uint32_t n = 0; n < nodes_; ++n) {
        for (const ValueId v : w_.f.nodes[n].operands) {
          if (v == kAbsent || producer_[static_cast<size_t>(v)] < 0) continue;
          const auto p = static_cast<uint32_t>(producer_[static_cast<size_t>(v)]);
          if (ResultOf(p) == static_cast<size_t>(v)) visit(p, n);
        }
      }
    };
    each([&](uint32_t p, uint32_t) { ++readers_begin_[p + 1]; });
    std::partial_sum(readers_begin_.begin(), readers_begin_.end(), readers_begin_.begin());
    readers_.resize(readers_begin_.back());
    std::vector<uint32_t> at(readers_begin_.begin(), readers_begin_.end() - 1);
    each([&](uint32_t p, uint32_t n) { readers_[at[p]++] = n; });
  }

  // The number, rounded to its tensor's type.
  opw_attr ArgumentOf(ValueId v) const {
    const auto node = static_cast<size_t>(producer_[static_cast<size_t>(v)]);
    opw_attr a{};
    a.kind = OPW_ATTR_FLOAT;
    a.value.f = std::get<double>(
        w_.typing.nodes[node]
            .attrs[static_cast<size_t>(RowOf(static_cast<uint32_t>(node)).FindAttr("value"))]);
    if ((kFloats | kFloat8s).Has(TypeOf(v).dtype)) {
      ops::VisitType(TypeOf(v).dtype, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        const T held = ops::Convert<T>(a.value.f);
        a.value.f = static_cast<double>(ops::Load<T>(&held, 0));
      });
    }
    return a;
  }

  // Orders units as close to the function's order as groups allow. A group has the place of its
  // last node.
  void Order() {
    std::vector<bool> taken_in(nodes_);
    if (!out_.groups.empty()) {
      if (readers_begin_.empty()) IndexReaders();
      for (uint32_t n = 0; n < nodes_; ++n) {
        if (w_.f.nodes[n].results.size() != 1 || !IsNumber(static_cast<ValueId>(ResultOf(n))) ||
            returned_[ResultOf(n)])
          continue;
        taken_in[n] = readers_begin_[n] < readers_begin_[n + 1] &&
                      std::all_of(readers_.begin() + readers_begin_[n],
                                  readers_.begin() + readers_begin_[n + 1],
                                  [&](uint32_t reader) { return group_of_[reader] >= 0; });
      }
    } else {
      group_of_.assign(nodes_, -1);
    }
    out_.unit_of.assign(nodes_, Schedule::kNowhere);
    std::vector<Unit> units;
    for (uint32_t n = 0; n < nodes_; ++n) {
      const int32_t group = group_of_[n];
      if (taken_in[n] || (group >= 0 && out_.groups[static_cast<size_t>(group)].nodes.back() != n))
        continue;
      for (const uint32_t member :
           group >= 0 ? std::span<const uint32_t>(out_.groups[static_cast<size_t>(group)].nodes)
                      : std::span(&n, 1)) {
        out_.unit_of[member] = static_cast<uint32_t>(units.size());
      }
      units.push_back({n, group});
    }
    if (out_.groups.empty()) {
      out_.units = std::move(units);
      return;
    }
    // Numbers that are read from memory come first. No stage reads them, so that the edges do not
    // include them.
    for (uint32_t n = 0; n < nodes_; ++n) {
      for (const ValueId v : w_.f.nodes[n].operands) {
        if (v != kAbsent && joinable_[n] && IsNumber(v) && group_of_[n] < 0)
          edges_.push_back({static_cast<uint32_t>(producer_[static_cast<size_t>(v)]), n, false});
      }
    }
    std::vector<uint32_t> waits(units.size());
    std::vector<std::pair<uint32_t, uint32_t>> after;  // of units
    for (const Edge& e : edges_) {
      const uint32_t from = out_.unit_of[e.from], to = out_.unit_of[e.to];
      if (from == to) continue;
      after.push_back({from, to});
      ++waits[to];
    }
    std::ranges::sort(after);
    // The number of a unit follows from its last node.
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t u = 0; u < units.size(); ++u) {
      if (waits[u] == 0) ready.push(u);
    }
    std::vector<uint32_t> place(units.size());
    while (!ready.empty()) {
      const uint32_t u = ready.top();
      ready.pop();
      place[u] = static_cast<uint32_t>(out_.units.size());
      out_.units.push_back(units[u]);
      for (auto it = std::ranges::lower_bound(after, std::pair(u, 0u));
           it != after.end() && it->first == u; ++it) {
        if (--waits[it->second] == 0) ready.push(it->second);
      }
    }
    assert(out_.units.size() == units.size());
    for (uint32_t& u : out_.unit_of) {
      if (u != Schedule::kNowhere) u = place[u];
    }
  }

  const Scheduled& w_;
  fused::Fuser& fuser_;
  const uint32_t nodes_;
  std::vector<int32_t> producer_;                        // by value: its node; -1 for parameters
  std::vector<std::optional<NodeReduction>> reduction_;  // by node: ReductionOf
  std::vector<bool> joinable_;                           // by node: it may be part of a group
  std::vector<Edge> by_from_;    // the edges by their first node, the last nodes first
  std::vector<ValueId> domain_;  // by node: a value of the shape on which it works
  std::vector<Place> place_;     // by node: the kind of its result relative to that shape
  std::optional<AxisOrders>
      orders_;  // of the nodes' axes; none: no permutation can be part of a group
  absl::flat_hash_map<uint32_t, std::string_view>
      why_apart_;  // by permutation: the reason why its neighbours cannot be joined with it
  std::optional<Dim> one_;      // an extent of 1, if a reduction keeps one
  std::vector<bool> returned_;  // by value
  std::vector<Edge> edges_;
  std::vector<uint32_t> stage_;      // by node
  std::vector<uint32_t> component_;  // by node: of a union-find
  std::vector<int32_t> group_of_;    // by node
  std::vector<bool> peeled_;         // by node: it was separated from nodes with other reductions
  std::vector<uint32_t> readers_begin_, readers_;
  Schedule out_;
};

}  // namespace

std::span<const std::string> Schedule::WhyAlone(uint32_t node) const {
  const auto found = std::ranges::lower_bound(lone, node, {}, &LoneNode::node);
  return found != lone.end() && found->node == node ? std::span<const std::string>(found->ends)
                                                    : std::span<const std::string>();
}

void ScheduleWriter::Add(FusedGroup group) {
  out_.groups.push_back(std::move(group));
  const std::vector<uint32_t>& nodes = out_.groups.back().nodes;
  Append({nodes.back(), static_cast<int32_t>(out_.groups.size() - 1)}, nodes);
}

void ScheduleWriter::Add(Unit unit) {
  if (unit.group >= 0)
    Add(std::move(from_.groups[static_cast<size_t>(unit.group)]));
  else
    Append(unit, {&unit.node, 1});
}

void ScheduleWriter::Append(const Unit& unit, std::span<const uint32_t> nodes) {
  for (const uint32_t n : nodes) out_.unit_of[n] = static_cast<uint32_t>(out_.units.size());
  out_.units.push_back(unit);
}

bool IsElementwise(const OpDef& row) {
  return (!row.body.Empty() || row.name == "expand") && row.results.size() == 1 &&
         !row.HasLists() && row.effects == Effects::kPure;
}

Schedule MakeSchedule(const Scheduled& what, const std::vector<bool>& fusable,
                      fused::Fuser* fuser) {
  Schedule out;
  if (fuser) {
    out = Scheduler(what, fusable, *fuser).Make();
    JoinEqualUnits(what, fusable, *fuser, out);
    JoinProducts(what, fusable, *fuser, out);
    return out;
  }
  for (uint32_t n = 0; n < what.f.nodes.size(); ++n) {
    out.units.push_back({n});
    out.unit_of.push_back(n);
  }
  return out;
}

}  // namespace opwire::executor

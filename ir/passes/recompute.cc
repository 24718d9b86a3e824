// Orders of nodes in which some run twice, their memory, and a search for a good order.
#include "ir/passes/recompute.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ir/passes/live.h"
#include "ir/passes/pass.h"
#include "ir/passes/pipeline.h"

namespace opwire {
namespace {

// Flops that take as long as moving a byte; few devices have a lower ratio.
constexpr double kFlopsPerByte = 32;
constexpr size_t kMostTries =
    2048;  // of a function in a round, each of which takes time linear in it
constexpr int kMostRounds = 16;
constexpr size_t kMostInChain = 256;  // nodes that are tried together; more distant nodes stay

constexpr uint32_t kNever = UINT32_MAX;

// A function, and the orders in which chosen nodes before `begin` run a second time for nodes after
// it.
class RecomputePlanner {
 public:
  struct Step {
    uint32_t node;
    bool again;
  };
  struct Needs {
    __int128 peak = 0, area = 0;  // bytes, and the sum of them over the steps
    uint32_t at = 0;              // the first node of the peak
  };

  RecomputePlanner(const Function& f, const OpCatalogue& ops)
      : f_(f), values_(f), producer_(values_.size(), -1), replaced_at_(values_.size(), kNever) {
    std::vector<uint32_t> of_param(f.params.size(), kNever);
    for (uint32_t n = 0; n < f.nodes.size(); ++n) {
      rows_.push_back(ops.Find(f.nodes[n].op));
      for (size_t r = 0; r < f.nodes[n].results.size(); ++r)
        producer_[values_.first_result[n] + r] = static_cast<int32_t>(n);
    }
    for (size_t p = 0; p < f.params.size(); ++p) {
      if (f.params[p].mode != ParamMode::kInout) continue;
      const auto result = std::ranges::find(f.results, f.params[p].name, &Result::name);
      if (result != f.results.end())
        replaced_at_[p] = static_cast<uint32_t>(producer_[static_cast<size_t>(result->value)]);
    }
    root_.resize(values_.size());
    std::iota(root_.begin(), root_.end(), 0);
    for (uint32_t n = 0; n < f.nodes.size(); ++n) {
      if (!IsView(n)) continue;
      root_[values_.first_result[n]] = RootOf(f.nodes[n].operands[0]);
      replaced_at_[values_.first_result[n]] =
          replaced_at_[static_cast<size_t>(RootOf(f.nodes[n].operands[0]))];
    }
  }

  const ValueTypes& values() const { return values_; }
  std::span<const OpDef* const> rows() const { return rows_; }
  bool IsView(uint32_t n) const { return rows_[n]->aliasing == Aliasing::kReshape; }
  ValueId RootOf(ValueId v) const { return root_[static_cast<size_t>(v)]; }
  // The node that made the storage of a value; -1 for parameters.
  int32_t MakerOf(ValueId v) const { return producer_[static_cast<size_t>(RootOf(v))]; }
  // Whether a copy of the node gives the same results, and can be distinguished from it.
  bool MayRunAgain(uint32_t n) const {
    return rows_[n]->effects == Effects::kPure && rows_[n]->control == Control::kNone &&
           !IsView(n) && ReadsKept(n) < f_.nodes[n].operands.size();
  }

  // Puts the nodes in order. Those of `again` also run before the first node after `begin` that
  // needs them. Returns the first node for which that is not possible, because it reads an inout
  // parameter after it was replaced.
  std::optional<uint32_t> Order(const std::vector<bool>& again, uint32_t begin,
                                std::vector<Step>& out) const {
    out.clear();
    std::vector<bool> made(f_.nodes.size());
    std::vector<uint32_t> stack;
    for (uint32_t n = 0; n < f_.nodes.size(); ++n) {
      const auto push = [&](uint32_t of) {
        for (const ValueId v : f_.nodes[of].operands) {
          const int32_t m = v == kAbsent ? -1 : MakerOf(v);
          if (m >= 0 && again[static_cast<size_t>(m)] && !made[static_cast<size_t>(m)])
            stack.push_back(static_cast<uint32_t>(m));
        }
      };
      if (n >= begin) push(n);
      while (!stack.empty()) {
        const uint32_t m = stack.back();
        if (made[m]) {
          stack.pop_back();
          continue;
        }
        const size_t before = stack.size();
        push(m);
        if (stack.size() > before) continue;
        stack.pop_back();
        const auto is_there = [&](ValueId v) {
          return v == kAbsent || replaced_at_[static_cast<size_t>(v)] >= n;
        };
        if (!std::ranges::all_of(f_.nodes[m].operands, is_there)) return m;
        made[m] = true;
        out.push_back({m, true});
      }
      out.push_back({n, false});
    }
    return std::nullopt;
  }

  // `inside`: by node, the bytes of the functions that it calls.
  Needs NeedsOf(const std::vector<Step>& order, const std::vector<bool>& again, uint32_t begin,
                const LiveValues& live, std::span<const __int128> inside) const {
    constexpr size_t kNone = SIZE_MAX;
    std::vector<std::pair<size_t, size_t>> first(values_.size(), {kNone, 0}),
        second(values_.size(), {kNone, 0});  // by root: the first and last step
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t n = order[i].node;
      for (const ValueId v : f_.nodes[n].operands) {
        if (v != kAbsent)
          (ReadsAgain(order[i], v, again, begin) ? second : first)[static_cast<size_t>(RootOf(v))]
              .second = i;
      }
      for (size_t r = 0; r < f_.nodes[n].results.size(); ++r)
        (order[i].again ? second : first)[values_.first_result[n] + r] = {i, i};
    }
    std::vector<__int128> taken(order.size() + 1);
    for (size_t v = 0; v < values_.size(); ++v) {
      if (!live.counts[v]) continue;
      for (const auto& [from, to] : {first[v], second[v]}) {
        if (from == kNone) continue;
        taken[from] += live.bytes[v];
        taken[to + 1] -= live.bytes[v];
      }
    }
    Needs needs;
    __int128 now = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      now += taken[i];
      needs.area += now;
      if (const __int128 all = now + inside[order[i].node]; all > needs.peak)
        needs = {all, needs.area, order[i].node};
    }
    return needs;
  }

  Function With(const std::vector<Step>& order, const std::vector<bool>& again, uint32_t begin,
                const OpDef& barrier) const {
    Function out{.name = f_.name, .params = f_.params, .nodes = {}, .results = f_.results};
    std::vector<ValueId> first(values_.size(), kAbsent), second = first;  // by value: its number
    auto next = static_cast<ValueId>(f_.params.size());
    std::iota(first.begin(), first.begin() + next, 0);
    const auto append = [&](Node node) {
      const ValueId made = next;
      next += static_cast<ValueId>(node.results.size());
      out.nodes.push_back(std::move(node));
      return made;
    };
    // Views of rematerialised values are rematerialised with them, except for nodes `recompute`.
    std::vector<ValueId> views;
    const auto again_as = [&](ValueId v) {
      for (; second[static_cast<size_t>(v)] == kAbsent;
           v = f_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(v)])].operands[0])
        views.push_back(v);
      ValueId number = second[static_cast<size_t>(v)];
      for (; !views.empty(); views.pop_back()) {
        Node view = f_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(views.back())])];
        view.operands[0] = number;
        if (view.op != barrier.name) number = append(std::move(view));
        second[static_cast<size_t>(views.back())] = number;
      }
      return number;
    };
    for (const Step& step : order) {
      Node node = f_.nodes[step.node];
      bool differs = !step.again;  // from the first run
      for (ValueId& v : node.operands) {
        if (v == kAbsent) continue;
        const bool reads_again = ReadsAgain(step, v, again, begin);
        differs |= reads_again;
        v = reads_again ? again_as(v) : first[static_cast<size_t>(v)];
      }
      if (!differs) {
        const size_t i = ReadsKept(step.node);
        const TensorType type =
            *values_.types[static_cast<size_t>(f_.nodes[step.node].operands[i])];
        node.operands[i] = append({.op = barrier.name,
                                   .version = barrier.version,
                                   .operands = {node.operands[i]},
                                   .results = {type},
                                   .location = node.location});
      }
      const size_t results = node.results.size();
      const ValueId made = append(std::move(node));
      for (size_t r = 0; r < results; ++r)
        (step.again ? second : first)[values_.first_result[step.node] + r] =
            made + static_cast<ValueId>(r);
    }
    for (Result& r : out.results) r.value = first[static_cast<size_t>(r.value)];
    return out;
  }

 private:
  bool ReadsAgain(const Step& reader, ValueId v, const std::vector<bool>& again,
                  uint32_t begin) const {
    const int32_t m = MakerOf(v);
    return m >= 0 && again[static_cast<size_t>(m)] && (reader.again || reader.node >= begin);
  }
  // Returns the index of the first operand that is a tensor whose storage is not replaced; the
  // number of operands if there is none.
  size_t ReadsKept(uint32_t n) const {
    const std::vector<ValueId>& operands = f_.nodes[n].operands;
    return static_cast<size_t>(
        std::ranges::find_if(operands,
                             [&](ValueId v) {
                               return v != kAbsent &&
                                      values_.types[static_cast<size_t>(v)] != nullptr &&
                                      replaced_at_[static_cast<size_t>(v)] == kNever;
                             }) -
        operands.begin());
  }

  const Function& f_;
  const ValueTypes values_;
  std::vector<const OpDef*> rows_;
  std::vector<int32_t> producer_;      // by value
  std::vector<uint32_t> replaced_at_;  // by value: the node whose result replaces the inout
                                       // parameter that has the value's storage
  std::vector<ValueId> root_;          // by value
};

// Changes functions so that they fit into the budget.
class Fitter {
 public:
  Fitter(Module& module, const RecomputeOptions& options, const DimValues& sizes)
      : m_(module), options_(options), sizes_(sizes), peaks_(module.functions.size()) {}

  // Changes a function, and first those that it calls, so that it needs at most `budget` bytes, if
  // that is possible.
  void Fit(uint32_t function, __int128 budget) {
    const Function& f = m_.functions[function];
    const RecomputePlanner planner(f, options_.ops);
    const LiveValues live = LiveValuesOf(f, planner.values(), planner.rows(), sizes_);
    const std::vector<__int128> taken = LiveBytes(f, planner.values(), live);
    std::vector<__int128> inside(f.nodes.size());
    for (uint32_t n = 0; n < f.nodes.size(); ++n) {
      for (const uint32_t callee : f.nodes[n].calls) {
        Fit(callee, budget - taken[n]);
        inside[n] = std::max(inside[n], peaks_[callee]);
      }
    }
    std::vector<bool> again(f.nodes.size());
    std::vector<RecomputePlanner::Step> order;
    planner.Order(again, kNever, order);
    RecomputePlanner::Needs needs = planner.NeedsOf(order, again, kNever, live, inside);
    const uint32_t begin = needs.at + 1;
    const std::vector<Chain> chains = needs.peak > budget && !f.nodes.empty()
                                          ? ChainsOf(f, planner, live, begin)
                                          : std::vector<Chain>();
    const size_t at_a_time = chains.size() / kMostTries + 1;
    // A chain that did not lower the peak may lower it after others have.
    bool lower = true;
    for (int round = 0; round < kMostRounds && lower && needs.peak > budget; ++round) {
      lower = false;
      for (size_t c = 0; c < chains.size() && needs.peak > budget; c += at_a_time) {
        std::vector<bool> more = again;
        for (size_t i = c; i < std::min(c + at_a_time, chains.size()); ++i) {
          for (const uint32_t n : chains[i].nodes) more[n] = true;
        }
        std::vector<RecomputePlanner::Step> tried;
        if (more == again || planner.Order(more, begin, tried)) continue;
        const RecomputePlanner::Needs then = planner.NeedsOf(tried, more, begin, live, inside);
        if (then.peak > needs.peak || (then.peak == needs.peak && then.area >= needs.area))
          continue;
        lower = true;
        needs = then;
        again.swap(more);
        order.swap(tried);
      }
    }
    peaks_[function] = needs.peak;
    nodes_ += static_cast<int64_t>(order.size() - f.nodes.size());
    if (order.size() > f.nodes.size())
      m_.functions[function] = planner.With(order, again, begin, *options_.ops.Find("recompute"));
  }
  int64_t nodes() const { return nodes_; }

 private:
  // A node with results that are needed after `begin`, and nodes that lead to it without such
  // results.
  struct Chain {
    std::vector<uint32_t> nodes;
    double cost = 0;  // work for each byte
  };

  // Returns the chains before `begin`, the cheapest first. Of equal ones, those near the function's
  // begin come first, because a backward pass needs them last.
  std::vector<Chain> ChainsOf(const Function& f, const RecomputePlanner& planner,
                              const LiveValues& live, uint32_t begin) const {
    std::vector<bool> kept(f.nodes.size()), may(f.nodes.size());
    std::vector<int64_t> bytes(f.nodes.size());
    for (uint32_t n = 0; n < begin; ++n) {
      may[n] = planner.MayRunAgain(n);
      for (size_t r = 0; r < f.nodes[n].results.size(); ++r) {
        const size_t v = planner.values().first_result[n] + r;
        if (live.last[v] >= begin && live.counts[v]) bytes[n] += live.bytes[v];
        kept[n] = kept[n] || live.last[v] >= begin;
      }
    }
    for (const Result& r : f.results) {
      if (const int32_t n = planner.MakerOf(r.value); n >= 0) may[static_cast<size_t>(n)] = false;
    }
    std::vector<Chain> out;
    std::vector<uint32_t> chain_of(f.nodes.size(), kNever);
    std::vector<double> work_of(f.nodes.size(), -1);
    for (uint32_t n = 0; n < begin; ++n) {
      if (!may[n] || bytes[n] == 0) continue;
      Chain chain{.nodes = {n}};
      double work = 0;
      for (size_t i = 0; i < chain.nodes.size(); ++i) {
        double& known = work_of[chain.nodes[i]];
        if (known < 0) known = WorkOf(f, planner, chain.nodes[i]);
        work += known;
        for (const ValueId v : f.nodes[chain.nodes[i]].operands) {
          const int32_t m =
              v == kAbsent || chain.nodes.size() == kMostInChain ? -1 : planner.MakerOf(v);
          if (m < 0 || kept[static_cast<size_t>(m)] || !may[static_cast<size_t>(m)] ||
              chain_of[static_cast<size_t>(m)] == n)
            continue;
          chain_of[static_cast<size_t>(m)] = n;
          chain.nodes.push_back(static_cast<uint32_t>(m));
        }
      }
      chain.cost = work / static_cast<double>(bytes[n]);
      out.push_back(std::move(chain));
    }
    std::ranges::stable_sort(out, {}, &Chain::cost);
    return out;
  }

  // The work of a node, in bytes that could be moved in the same time.
  double WorkOf(const Function& f, const RecomputePlanner& planner, uint32_t n) const {
    const OpCost cost = CostOf(*planner.rows()[n], f.nodes[n], planner.values(), sizes_);
    return cost.bytes + cost.flops / kFlopsPerByte;
  }

  Module& m_;
  const RecomputeOptions& options_;
  const DimValues& sizes_;
  std::vector<__int128> peaks_;  // by function
  int64_t nodes_ = 0;
};

}  // namespace

StatusOr<RecomputeReport> Recompute(Module& module, const RecomputeOptions& options) {
  Module m = module;
  const auto peak_of = [&]() -> StatusOr<int64_t> {
    OPWIRE_ASSIGN_OR_RETURN(const Typing typing, VerifyModule(m, options.limits, options.ops));
    OPWIRE_ASSIGN_OR_RETURN(
        const ProgramCost cost,
        CostOf(m, typing, {.limits = options.limits, .ops = options.ops, .sizes = options.sizes}));
    return cost.peak_bytes;
  };
  RecomputeReport report;
  OPWIRE_ASSIGN_OR_RETURN(report.before_bytes, peak_of());
  if (HasCountsInValues(m))
    return Unimplemented(
        "recompute: expected extents that are known before a run, got one that a value holds");
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SizesOf(m.dims, options.sizes));
  const DimTable dims = m.dims;
  const DimValues sizes(dims, symbols);
  Fitter fitter(m, options, sizes);
  fitter.Fit(0, options.memory_bytes);
  OPWIRE_ASSIGN_OR_RETURN(report.after_bytes, peak_of());
  if (report.after_bytes > options.memory_bytes) {
    return ResourceExhausted(
        "recompute: expected at most {} bytes between nodes, the least found is {}, from {}",
        options.memory_bytes, report.after_bytes, report.before_bytes);
  }
  report.nodes = fitter.nodes();
  module = std::move(m);
  return report;
}

void RecomputeMarked(Function& f, uint32_t begin, const OpCatalogue& ops) {
  const OpDef& mark = *ops.Find("recompute");
  if (std::ranges::none_of(f.nodes, [&](const Node& node) { return node.op == mark.name; })) return;
  {
    const RecomputePlanner planner(f, ops);
    std::vector<bool> again(f.nodes.size());
    for (uint32_t n = 0; n < begin; ++n) {
      const int32_t maker =
          f.nodes[n].op == mark.name ? planner.MakerOf(f.nodes[n].operands[0]) : -1;
      if (maker >= 0)
        again[static_cast<size_t>(maker)] = planner.MayRunAgain(static_cast<uint32_t>(maker));
    }
    std::vector<RecomputePlanner::Step> order;
    while (const std::optional<uint32_t> impossible = planner.Order(again, begin, order))
      again[*impossible] = false;
    f = planner.With(order, again, begin, mark);
  }
  // The nodes `recompute` are at their original positions, because added nodes come after them.
  auto next = static_cast<ValueId>(f.params.size());
  std::vector<ValueId> now(f.params.size());
  std::iota(now.begin(), now.end(), 0);
  std::vector<Node> nodes;
  for (uint32_t n = 0; n < f.nodes.size(); ++n) {
    Node& node = f.nodes[n];
    for (ValueId& v : node.operands) v = v == kAbsent ? v : now[static_cast<size_t>(v)];
    if (n < begin && node.op == mark.name) {
      now.push_back(node.operands[0]);
      continue;
    }
    for (size_t r = 0; r < node.results.size(); ++r) now.push_back(next++);
    nodes.push_back(std::move(node));
  }
  for (Result& r : f.results) r.value = now[static_cast<size_t>(r.value)];
  f.nodes = std::move(nodes);
}

}  // namespace opwire

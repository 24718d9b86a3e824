// Joins equal optimiser steps over lists of tensors, one after the other, to one step over all of
// them: one kernel instead of one for each weight.
//
// This applies to ops whose results are all lists and may take their operands' places
// (Aliasing::kElementwise). A result at one place of the lists then depends on the operands at that
// place, and on operands that are not lists. Nodes join if they agree in attributes, element types
// and the latter operands, and no path leads from one to another. A node that reads an inout
// parameter has an edge to the node that replaces it.
//
// No value that takes memory is kept longer. Nodes move only within a range of nodes whose results
// are all returned, so that they have memory for the whole run, or have rank 0.
#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/passes/pass.h"
#include "ir/program/joint_order.h"

namespace opwire {
namespace {

using Nodes = std::vector<uint32_t>;

class Joiner {
 public:
  Joiner(PassContext& context, uint32_t function)
      : context_(context),
        typing_(context.typing.functions[function]),
        f_(context.module.functions[function]),
        values_(f_),
        producer_(values_.size(), -1),
        returned_(values_.size()),
        replaced_at_(f_.params.size(), -1) {
    for (uint32_t n = 0; n < f_.nodes.size(); ++n) {
      for (size_t r = 0; r < f_.nodes[n].results.size(); ++r)
        producer_[values_.first_result[n] + r] = static_cast<int32_t>(n);
    }
    for (const Result& r : f_.results) returned_[static_cast<size_t>(r.value)] = true;
    for (size_t p = 0; p < f_.params.size(); ++p) {
      const int32_t by = typing_.replaced_by[p];
      if (by >= 0)
        replaced_at_[p] = producer_[static_cast<size_t>(f_.results[static_cast<size_t>(by)].value)];
    }
  }

  void Run() {
    const auto count = static_cast<uint32_t>(f_.nodes.size());
    for (uint32_t begin = 0; begin < count;) {
      if (!Moves(begin)) {
        units_.push_back({begin++});
        continue;
      }
      uint32_t end = begin + 1;
      while (end < count && Moves(end)) ++end;
      Arrange(begin, end);
      begin = end;
    }
    if (units_.size() < count) Rebuild();
  }

 private:
  const OpDef& RowOf(uint32_t n) const { return *typing_.nodes[n].row; }

  // Whether the node can move without keeping a value in memory longer.
  bool Moves(uint32_t n) const {
    if (RowOf(n).effects != Effects::kPure || RowOf(n).control != Control::kNone) return false;
    for (size_t r = 0; r < f_.nodes[n].results.size(); ++r) {
      if (!returned_[values_.first_result[n] + r] && f_.nodes[n].results[r].rank() > 0)
        return false;
    }
    return true;
  }

  static bool WorksPlaceByPlace(const OpDef& row) {
    return row.aliasing == Aliasing::kElementwise && row.HasLists() &&
           std::ranges::all_of(row.results, &ResultSpec::variadic);
  }

  // A key that is equal for nodes that may be joined, if paths allow it. Empty: the node is not
  // joined.
  std::string KeyOf(uint32_t n) const {
    const Node& node = f_.nodes[n];
    const OpDef& row = RowOf(n);
    if (!WorksPlaceByPlace(row) || !node.pin.empty() || node.results.empty()) return "";
    std::string key = node.op;
    const auto put = [&](uint64_t bits) {
      key.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    };
    put(node.version);
    const std::vector<uint32_t> starts = row.OperandStarts(node.segments);
    for (size_t i = 0; i < row.operands.size(); ++i) {
      if (!row.operands[i].variadic) {
        put(static_cast<uint64_t>(node.operands[starts[i]]));
      } else if (starts[i] < starts[i + 1]) {
        const TensorType& type = *values_.types[static_cast<size_t>(node.operands[starts[i]])];
        put(static_cast<uint64_t>(type.dtype) << 8 | static_cast<uint64_t>(type.encoding));
      } else {
        put(~uint64_t{0});
      }
    }
    bool known = true;
    for (const AttrValue& a : typing_.nodes[n].attrs) {
      std::visit(
          [&](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, double>)
              put(std::bit_cast<uint64_t>(v));
            else if constexpr (std::is_integral_v<T> || std::is_same_v<T, DType>)
              put(static_cast<uint64_t>(v));
            else
              known = false;  // a list or bytes: no optimiser has such attributes
          },
          a);
    }
    return known ? key : "";
  }

  // Makes units of the nodes from `begin` up to `end`, whose order may change.
  void Arrange(uint32_t begin, uint32_t end) {
    const auto within = [&](int32_t n) {
      return n >= static_cast<int32_t>(begin) && n < static_cast<int32_t>(end);
    };
    std::vector<std::pair<uint32_t, uint32_t>>
        edges;  // an earlier node, and one that must run after it
    for (uint32_t n = begin; n < end; ++n) {
      for (const ValueId v : f_.nodes[n].operands) {
        if (v == kAbsent) continue;
        if (const int32_t p = producer_[static_cast<size_t>(v)]; within(p))
          edges.push_back({static_cast<uint32_t>(p) - begin, n - begin});
        const int32_t by = static_cast<size_t>(v) < replaced_at_.size()
                               ? replaced_at_[static_cast<size_t>(v)]
                               : -1;
        if (within(by) && by > static_cast<int32_t>(n))
          edges.push_back({n - begin, static_cast<uint32_t>(by) - begin});
      }
    }
    std::vector<std::string> keys;
    for (uint32_t n = begin; n < end; ++n) keys.push_back(KeyOf(n));
    for (Nodes& unit : JointOrder(keys, std::move(edges))) {
      for (uint32_t& n : unit) n += begin;
      units_.push_back(std::move(unit));
    }
  }

  // Rewrites the function with one node per unit.
  void Rebuild() {
    Function out{.name = f_.name, .params = f_.params, .nodes = {}, .results = f_.results};
    std::vector<ValueId> renamed(values_.size(), kAbsent);
    for (size_t p = 0; p < f_.params.size(); ++p) renamed[p] = static_cast<ValueId>(p);
    auto next = static_cast<ValueId>(f_.params.size());
    const auto rename = [&](ValueId v) {
      return v == kAbsent ? kAbsent : renamed[static_cast<size_t>(v)];
    };
    for (const Nodes& unit : units_) {
      const OpDef& row = RowOf(unit[0]);
      Node node = f_.nodes[unit[0]];
      if (unit.size() > 1) {
        context_.changes += static_cast<int64_t>(unit.size()) - 1;
        std::vector<std::vector<uint32_t>> operands,
            results;  // by node: the begin of each operand or result of the op definition
        for (const uint32_t n : unit) {
          operands.push_back(row.OperandStarts(f_.nodes[n].segments));
          results.push_back(row.ResultStarts(operands.back()));
        }
        node.operands.clear();
        for (size_t i = 0; i < row.operands.size(); ++i) {
          const size_t before = node.operands.size();
          for (size_t k = 0; k < (row.operands[i].variadic ? unit.size() : 1); ++k) {
            const std::vector<ValueId>& from = f_.nodes[unit[k]].operands;
            node.operands.insert(node.operands.end(), from.begin() + operands[k][i],
                                 from.begin() + operands[k][i + 1]);
          }
          node.segments[i] = static_cast<uint32_t>(node.operands.size() - before);
        }
        node.results.clear();
        for (size_t r = 0; r < row.results.size(); ++r) {
          for (size_t k = 0; k < unit.size(); ++k) {
            for (uint32_t i = results[k][r]; i < results[k][r + 1]; ++i) {
              node.results.push_back(f_.nodes[unit[k]].results[i]);
              renamed[values_.first_result[unit[k]] + i] = next++;
            }
          }
        }
      } else {
        for (size_t i = 0; i < node.results.size(); ++i)
          renamed[values_.first_result[unit[0]] + i] = next++;
      }
      std::ranges::transform(node.operands, node.operands.begin(), rename);
      out.nodes.push_back(std::move(node));
    }
    for (Result& r : out.results) r.value = rename(r.value);
    f_ = std::move(out);
  }

  PassContext& context_;
  const FunctionTyping& typing_;
  Function& f_;
  const ValueTypes values_;           // of the original function
  std::vector<int32_t> producer_;     // by value: its node; -1 for parameters
  std::vector<bool> returned_;        // by value
  std::vector<int32_t> replaced_at_;  // by parameter: the node whose result replaces it; -1: none
  std::vector<Nodes> units_;          // in their new order
};

}  // namespace

void JoinLists(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) Joiner(context, f).Run();
}

}  // namespace opwire

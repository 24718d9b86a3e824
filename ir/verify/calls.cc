// Rules for functions that call others: no cycles, the types and modes of parameters and results,
// and the symbols.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/ops/names.h"
#include "ir/verify/checks.h"

namespace opwire::verify {
namespace {

// Calls `visit(node, callee)` for each call in `f`.
template <typename F>
Status ForCalls(const Function& f, const F& visit) {
  for (const Node& n : f.nodes) {
    for (const uint32_t callee : n.calls) OPWIRE_RETURN_IF_ERROR(visit(n, callee));
  }
  return absl::OkStatus();
}

// The calls of one node.
class CallChecker {
 public:
  CallChecker(const Module& module, const Typing& typing, const OpDef& row, const Node& node,
              const std::vector<const TensorType*>& values)
      : m_(module), typing_(typing), row_(row), node_(node) {
    const std::vector<uint32_t> starts = row.OperandStarts(node.segments);
    const std::vector<const TensorType*> operands = OperandTypes(node, values);
    const auto list = [&](int i) {
      return std::vector<const TensorType*>(operands.begin() + starts[i],
                                            operands.begin() + starts[i + 1]);
    };
    for (size_t i = 0; i < row.operands.size(); ++i) {
      if (!row.operands[i].variadic) continue;
      for (const TensorType* t : list(static_cast<int>(i)))
        given_.push_back({t, row.operands[i].name});
    }
  }

  Status Check() const {
    const TensorType index{.dtype = DType::kI64}, condition{.dtype = DType::kBool};
    const auto pointers = [](const std::vector<TensorType>& types) {
      std::vector<const TensorType*> out;
      for (const TensorType& t : types) out.push_back(&t);
      return out;
    };
    const std::vector<const TensorType*> results = pointers(node_.results);
    switch (row_.control) {
      case Control::kIf:
        for (size_t k = 0; k < 2; ++k)
          OPWIRE_RETURN_IF_ERROR(CheckCall(k, nullptr, results, false));
        break;
      case Control::kWhile:
        OPWIRE_RETURN_IF_ERROR(CheckCall(0, nullptr, {&condition}, false));
        OPWIRE_RETURN_IF_ERROR(CheckCall(1, nullptr, results, true));
        break;
      case Control::kRepeat:
        OPWIRE_RETURN_IF_ERROR(CheckCall(0, &index, results, true));
        break;
      case Control::kNone:
      case Control::kEmit:
        break;
    }
    return absl::OkStatus();
  }

 private:
  struct Given {
    const TensorType* type;
    std::string_view list;  // the operand that contains it
  };

  // Checks call k. Its parameters are `first`, if not null, and the given values. `carries`: its
  // results replace its parameters, place by place, so these may be inout.
  Status CheckCall(size_t k, const TensorType* first, const std::vector<const TensorType*>& results,
                   bool carries) const {
    const uint32_t callee = node_.calls[k];
    const Function& f = m_.functions[callee];
    const std::string who = fmt::format("{}: {} @{}", row_.name, row_.calls[k], Clip(f.name));
    std::vector<Given> given;
    if (first != nullptr) given.push_back({first, "the iteration"});
    given.insert(given.end(), given_.begin(), given_.end());
    if (f.params.size() != given.size())
      return InvalidArgument("{}: expected {} parameters, got {}", who, given.size(),
                             f.params.size());
    const size_t carried_from = first != nullptr,
                 carried_to = carries ? carried_from + results.size() : 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const Param& p = f.params[i];
      if (p.mode == ParamMode::kDim)
        return InvalidArgument(
            "{}: parameter %{} is a dimension; a called function has its callers' symbols", who,
            Clip(p.name));
      if (p.type != *given[i].type) {
        return InvalidArgument("{}: parameter %{}: expected {} as {} has, got {}", who,
                               Clip(p.name), ToString(*given[i].type, m_.dims), given[i].list,
                               ToString(p.type, m_.dims));
      }
      if (p.mode != ParamMode::kInout) continue;
      const bool carried = carries && i >= carried_from && i < carried_to;
      if (!carried)
        return InvalidArgument("{}: parameter %{} is inout; only what a loop's body carries may be",
                               who, Clip(p.name));
      const int32_t by = typing_.functions[callee].replaced_by[i];
      if (static_cast<size_t>(by) != i - carried_from) {
        return InvalidArgument(
            "{}: inout %{}: expected result {}, of its place, to replace it, got result {}", who,
            Clip(p.name), i - carried_from, by);
      }
    }
    if (f.results.size() != results.size())
      return InvalidArgument("{}: expected {} results, got {}", who, results.size(),
                             f.results.size());
    const ValueTypes values(f);
    for (size_t r = 0; r < results.size(); ++r) {
      const TensorType& type = *values.types[static_cast<size_t>(f.results[r].value)];
      if (type == *results[r]) continue;
      return InvalidArgument("{}: result {}: expected {}, got {}", who, Clip(f.results[r].name),
                             ToString(*results[r], m_.dims), ToString(type, m_.dims));
    }
    return absl::OkStatus();
  }

  const Module& m_;
  const Typing& typing_;
  const OpDef& row_;
  const Node& node_;
  std::vector<Given> given_;
};

}  // namespace

// Removes functions that no remaining function calls, so each call is visited once.
StatusOr<CallOrder> OrderByCalls(const Module& m, const Limits& limits) {
  const size_t count = m.functions.size();
  std::vector<size_t> callers(count, 0);
  for (const Function& f : m.functions) {
    OPWIRE_RETURN_IF_ERROR(ForCalls(f, [&](const Node& n, uint32_t callee) -> Status {
      if (callee >= count)
        return InvalidArgument("{}: calls function {}, but \"{}\" stands in a program of {}",
                               Clip(n.op), callee, f.name, count);
      ++callers[callee];
      return absl::OkStatus();
    }));
  }
  std::vector<int64_t> depth(count, 0);
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < count; ++i) {
    if (callers[i] == 0) order.push_back(i);
  }
  for (size_t peeled = 0; peeled < order.size(); ++peeled) {
    const uint32_t caller = order[peeled];
    OPWIRE_RETURN_IF_ERROR(
        ForCalls(m.functions[caller], [&](const Node&, uint32_t callee) -> Status {
          depth[callee] = std::max(depth[callee], depth[caller] + 1);
          if (--callers[callee] == 0) order.push_back(callee);
          return absl::OkStatus();
        }));
    OPWIRE_RETURN_IF_ERROR(CheckLimit(depth[caller], limits.call_depth, "nested calls"));
  }
  if (order.size() < count) {
    const auto in_cycle =
        std::find_if(callers.begin(), callers.end(), [](size_t n) { return n > 0; }) -
        callers.begin();
    return InvalidArgument("function \"{}\" is in or behind a cycle of calls",
                           m.functions[static_cast<size_t>(in_cycle)].name);
  }
  std::vector<int64_t> nodes(count);
  for (size_t i = count; i-- > 0;) {
    const Function& f = m.functions[order[i]];
    int64_t& all = nodes[order[i]];
    all = static_cast<int64_t>(f.nodes.size());
    OPWIRE_RETURN_IF_ERROR(ForCalls(f, [&](const Node&, uint32_t callee) -> Status {
      all += nodes[callee];
      if (all <= limits.nodes) return absl::OkStatus();
      return Annotate(
          CheckLimit(all, limits.nodes, "nodes, with those of called functions at each call"),
          fmt::format(" (\"{}\")", Clip(f.name)));
    }));
  }
  return CallOrder{std::move(order), std::move(nodes)};
}

Status CheckCalledFunctions(const Module& m, Typing& typing,
                            std::span<const uint32_t> callers_first) {
  std::vector<bool> called(m.functions.size());
  std::vector<uint32_t> merged_into(m.functions.size(), UINT32_MAX);
  for (size_t i = callers_first.size(); i-- > 0;) {
    const uint32_t number = callers_first[i];
    const Function& f = m.functions[number];
    FunctionTyping& own = typing.functions[number];
    const bool calls = std::ranges::any_of(f.nodes, [](const Node& n) { return !n.calls.empty(); });
    if (!calls) continue;
    const ValueTypes values(f);
    for (uint32_t n = 0; n < f.nodes.size(); ++n) {
      if (f.nodes[n].calls.empty()) continue;
      const Status status =
          CallChecker(m, typing, *own.nodes[n].row, f.nodes[n], values.types).Check();
      if (!status.ok()) return Annotate(status, PlaceOfNode(f, values, n));
      for (const uint32_t callee : f.nodes[n].calls) {
        called[callee] = true;
        if (std::exchange(merged_into[callee], number) == number) continue;
        const std::vector<uint32_t>& theirs = typing.functions[callee].uses;
        own.uses.insert(own.uses.end(), theirs.begin(), theirs.end());
      }
    }
    std::ranges::sort(own.uses);
    own.uses.erase(std::unique(own.uses.begin(), own.uses.end()), own.uses.end());
  }
  for (const uint32_t number : callers_first) {
    if (called[number]) continue;
    for (const uint32_t s : typing.functions[number].uses) {
      if (typing.functions[number].symbols[s].param >= 0) continue;
      return InvalidArgument(
          "dimension ?{} cannot be bound: no parameter has it as an extent, and it is no parameter "
          "(\"{}\")",
          Clip(m.dims.symbols()[s].name), Clip(m.functions[number].name));
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::verify

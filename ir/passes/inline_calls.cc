// Replaces branches with a known condition, and loops with at most one iteration, by the nodes of
// the function that they call.
#include <algorithm>
#include <bit>

#include "ir/passes/constants.h"

namespace opwire {
namespace {

// Returns the 0-d number in operand 0, if it is known.
std::optional<int64_t> KnownNumber(const Rewriter& r, const Node& node) {
  const auto known = ConstantOf(r, node.operands[0]);
  if (!known || !known->splat) return std::nullopt;
  return std::bit_cast<int64_t>(known->bits());
}

// Appends the function's nodes with these parameters and returns its results; nothing if the module
// has no room for the nodes.
std::optional<std::vector<ValueId>> Spliced(Rewriter& r, const Function& f,
                                            std::vector<ValueId> values) {
  for (const Node& node : f.nodes) {
    if (!r.HasRoom()) return std::nullopt;
    Node copy = node;
    for (ValueId& v : copy.operands) {
      if (v != kAbsent) v = values[static_cast<size_t>(v)];
    }
    const std::vector<ValueId> made = r.AppendNode(std::move(copy));
    values.insert(values.end(), made.begin(), made.end());
  }
  std::vector<ValueId> results;
  for (const Result& result : f.results)
    results.push_back(values[static_cast<size_t>(result.value)]);
  return results;
}

// Returns the values that replace the node's results; nothing if the node must stay.
std::optional<std::vector<ValueId>> Inlined(const PassContext& context, Rewriter& r, uint32_t n,
                                            const Node& node) {
  const OpDef& row = r.RowOf(n);
  if (row.control != Control::kIf && row.control != Control::kRepeat) return std::nullopt;
  const auto number = KnownNumber(r, node);
  if (!number) return std::nullopt;
  std::vector<ValueId> given(node.operands.begin() + 1, node.operands.end());
  if (row.control == Control::kIf)
    return Spliced(r, context.module.functions[node.calls[*number != 0 ? 0 : 1]], std::move(given));
  if (*number > 1) return std::nullopt;
  if (*number < 1) {
    given.resize(node.results.size());
    return given;
  }
  const ValueId iteration = r.Append("full", {}, {{"value", 0.0}, {"dtype", DType::kI64}});
  if (iteration == kAbsent) return std::nullopt;
  given.insert(given.begin(), iteration);
  return Spliced(r, context.module.functions[node.calls[0]], std::move(given));
}

}  // namespace

void InlineCalls(PassContext& context) {
  const std::vector<bool> called = CalledFunctions(context.module);
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      const Node& node = r.Begin(n);
      if (!node.calls.empty() && node.pin.empty()) {
        const auto values = Inlined(context, r, n, node);
        if (values && r.ReplaceAll(*values)) continue;
        r.TakeBack();
      }
      r.Keep();
    }
    r.Finish();
  }
  context.changes += RemoveUncalled(context.module, called);
}

}  // namespace opwire

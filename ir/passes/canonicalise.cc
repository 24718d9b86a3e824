// One way to write what can be written in several, so that other passes meet fewer forms.
#include <tuple>
#include <utility>

#include "ir/passes/constants.h"
#include "ir/passes/rules.h"

namespace opwire {
namespace {

bool IsConstant(const Rewriter& r, ValueId v) {
  const Node* const node = r.Producer(v);
  return node != nullptr && (node->op == "zeros" || node->op == "full" || node->op == "values" ||
                             node->op == "constant");
}

// On the left stands what is no constant, then what is of the result's shape, then what was made
// first.
bool OrderOperands(const Rewriter& r, Node& node) {
  if (!IsCommutative(node.op)) return false;
  ValueId &x = node.operands[0], &y = node.operands[1];
  const auto place = [&](ValueId v) {
    return std::tuple(IsConstant(r, v), r.TypeOf(v).shape != node.results[0].shape, v);
  };
  if (place(x) <= place(y)) return false;
  std::swap(x, y);
  return true;
}

// An operand that is one value everywhere has rank 0, where another one has the result's shape:
// nothing has to be written to be read.
bool ShrinkConstants(Rewriter& r, const OpDef& row, Node& node) {
  if (row.body.Empty()) return false;
  bool changed = false;
  for (ValueId& v : node.operands) {
    if (r.TypeOf(v).rank() == 0 || !IsConstant(r, v)) continue;
    const bool shaped = std::ranges::any_of(node.operands, [&](const ValueId& other) {
      return &other != &v && r.TypeOf(other).shape == node.results[0].shape;
    });
    const auto c = shaped ? ConstantOf(r, v) : std::nullopt;
    if (!c || !c->splat) continue;
    const ValueId scalar = AppendConstant(r, {.dtype = c->dtype}, *c);
    if (scalar == kAbsent) continue;
    v = scalar;
    changed = true;
  }
  return changed;
}

// Attributes at their default are left out.
bool DropDefaults(const OpDef& row, Node& node) {
  return std::erase_if(node.attrs, [&](const NamedAttr& a) {
           const auto& fallback = row.attrs[static_cast<size_t>(row.FindAttr(a.name))].fallback;
           return fallback && SameBits(*fallback, a.value);
         }) > 0;
}

}  // namespace

void Canonicalise(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      Node& node = r.Begin(n);
      if (node.pin.empty() && ShrinkConstants(r, r.RowOf(n), node)) ++context.changes;
      if (node.pin.empty() && OrderOperands(r, node)) ++context.changes;
      if (DropDefaults(r.RowOf(n), node)) ++context.changes;
      r.Keep();
    }
    r.Finish();
  }
}

}  // namespace opwire

// Joins a sum of two tensors and the norm that is its first reader to one op. So the norm need not
// read from memory the sum that was just written. Later readers of the sum, as in the residual
// stream of a transformer, read it from memory: the joint op also writes the sum.
#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

// Whether operand `i` of the sum is computed element by element, for this sum only. Then it and the
// sum become one kernel anyway, and a join would not save reads. An operand with earlier readers is
// in memory in any case, like a residual stream.
bool IsFused(const Rewriter& r, const Node& sum, int i) {
  const ValueId v = sum.operands[static_cast<size_t>(i)];
  const Node* const maker = r.Producer(v);
  return maker != nullptr && !r.FindRow(maker->op)->body.Empty() && r.Reads(v) == 1;
}

// `joined`: the op that computes add and the node together.
Done Joined(Rewriter& r, const Node& node, std::string_view joined) {
  const Node* const sum = r.Producer(node.operands[0]);
  if (sum == nullptr || sum->op != "add" || !sum->pin.empty() || !r.ReadFirst(0))
    return Done::kNothing;
  if (IsFused(r, *sum, 0) || IsFused(r, *sum, 1)) return Done::kNothing;
  std::vector<ValueId> operands = sum->operands;
  operands.insert(operands.end(), node.operands.begin() + 1, node.operands.end());
  const std::vector<ValueId> made =
      r.AppendAll(joined, std::move(operands), node.attrs);  // it needs terms of one shape
  if (made.size() == 2 && r.ReplaceWithOperand(made[0], 0, made[1])) return Done::kReplaced;
  r.TakeBack();
  return Done::kNothing;
}

constexpr Rewrite kNormRewrites[] = {
    {"layer_norm(add(x, r), w, b) -> add_layer_norm(x, r, w, b)", "layer_norm",
     [](Rewriter& r, Node& node, const std::vector<AttrValue>&) {
       return Joined(r, node, "add_layer_norm");
     }},
    {"rms_norm(add(x, r), w) -> add_rms_norm(x, r, w)", "rms_norm",
     [](Rewriter& r, Node& node, const std::vector<AttrValue>&) {
       return Joined(r, node, "add_rms_norm");
     }},
};

}  // namespace

std::span<const Rewrite> NormRewrites() { return kNormRewrites; }

// Not with exact results: kernels of the two ops add terms in different orders.
void JoinNorms(PassContext& context) {
  if (context.accuracy != Accuracy::kExact) ApplyRewrites(context, kNormRewrites);
}

}  // namespace opwire

// A sum of two tensors and the norm that is the first to read it become one op, so that the norm
// need not read again what the sum just wrote. Those that read the sum later, as the residual
// stream of a transformer is read, have it from there.
#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

// Whether operand `i` of the sum is computed element by element, for it alone: it and the sum then
// become one kernel by themselves, and no less would be read. What others have read before is in
// memory anyway, as the residual stream is that the sum goes on with.
bool IsFused(const Rewriter& r, const Node& sum, int i) {
  const ValueId v = sum.operands[static_cast<size_t>(i)];
  const Node* const maker = r.Producer(v);
  return maker != nullptr && !r.FindRow(maker->op)->body.Empty() && r.Reads(v) == 1;
}

// `joined`: what add and the node are together.
Done Joined(Rewriter& r, const Node& node, std::string_view joined) {
  const Node* const sum = r.Producer(node.operands[0]);
  if (sum == nullptr || sum->op != "add" || !sum->pin.empty() || !r.ReadFirst(0))
    return Done::kNothing;
  if (IsFused(r, *sum, 0) || IsFused(r, *sum, 1)) return Done::kNothing;
  std::vector<ValueId> operands = sum->operands;
  operands.insert(operands.end(), node.operands.begin() + 1, node.operands.end());
  const std::vector<ValueId> made =
      r.AppendAll(joined, std::move(operands), node.attrs);  // which wants one shape of the terms
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

// Not where results are to be exact: kernels of the two ops add terms in orders of their own.
void JoinNorms(PassContext& context) {
  if (context.accuracy != Accuracy::kExact) ApplyRewrites(context, kNormRewrites);
}

}  // namespace opwire

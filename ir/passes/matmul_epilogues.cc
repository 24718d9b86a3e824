// A matmul becomes one op with the bias and the activation after it, if no other node reads it.
// Libraries and our own kernels compute the epilogue of sums in place, so that bias and activation
// need no memory traffic of their own.
#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

// Returns the node that makes operand `i`, if it is an `op` without a pin whose only reader is the
// current node; else null.
const Node* Only(const Rewriter& r, const Node& node, int i, std::string_view op) {
  if (!r.ReadOnce(i)) return nullptr;
  const Node* const maker = r.Producer(node.operands[static_cast<size_t>(i)]);
  return maker != nullptr && maker->op == op && maker->pin.empty() ? maker : nullptr;
}

// Replaces the node by a layer.
Done Becomes(Rewriter& r, std::vector<ValueId> operands, std::string_view activation,
             const AttrValue& precision) {
  const ValueId v = r.Append("linear", std::move(operands),
                             {{"activation", std::string(activation)}, {"precision", precision}});
  return r.ReplaceOrTakeBack(v) ? Done::kReplaced : Done::kNothing;
}

// Whether the matmul is x times a transposed matrix, like the weight of a layer.
bool IsLayer(const Rewriter& r, const Node& matmul, const std::vector<AttrValue>& attrs) {
  return !std::get<bool>(attrs[0]) && std::get<bool>(attrs[1]) &&
         r.TypeOf(matmul.operands[1]).rank() == 2;
}

// Whether a value that is added to a layer's result is the same for each of its rows.
bool IsBias(const Rewriter& r, ValueId v, ValueId of) {
  const std::vector<Dim>& shape = r.TypeOf(v).shape;
  return shape.size() == 1 && shape[0] == r.TypeOf(of).shape.back();
}

Done AddOfMatmul(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  for (int i = 0; i < 2; ++i) {
    const Node* const matmul = Only(r, node, i, "matmul");
    const ValueId bias = node.operands[static_cast<size_t>(1 - i)];
    if (matmul == nullptr || !IsBias(r, bias, node.operands[static_cast<size_t>(i)])) continue;
    const std::vector<AttrValue> attrs = r.Resolved(*matmul);
    if (!IsLayer(r, *matmul, attrs)) continue;
    return Becomes(r, {matmul->operands[0], matmul->operands[1], bias}, "none", attrs[2]);
  }
  return Done::kNothing;
}

Done AddOfLinear(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  for (int i = 0; i < 2; ++i) {
    const Node* const linear = Only(r, node, i, "linear");
    const ValueId bias = node.operands[static_cast<size_t>(1 - i)];
    if (linear == nullptr || linear->operands[2] != kAbsent ||
        !IsBias(r, bias, node.operands[static_cast<size_t>(i)]))
      continue;
    const std::vector<AttrValue> attrs = r.Resolved(*linear);
    if (std::get<std::string>(attrs[0]) != "none") continue;
    return Becomes(r, {linear->operands[0], linear->operands[1], bias}, "none", attrs[1]);
  }
  return Done::kNothing;
}

// The node is the activation.
Done ActivationOfMatmul(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  const Node* const matmul = Only(r, node, 0, "matmul");
  if (matmul == nullptr) return Done::kNothing;
  const std::vector<AttrValue> attrs = r.Resolved(*matmul);
  if (!IsLayer(r, *matmul, attrs)) return Done::kNothing;
  return Becomes(r, {matmul->operands[0], matmul->operands[1]}, node.op, attrs[2]);
}

Done ActivationOfLinear(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  const Node* const linear = Only(r, node, 0, "linear");
  if (linear == nullptr) return Done::kNothing;
  const std::vector<AttrValue> attrs = r.Resolved(*linear);
  if (std::get<std::string>(attrs[0]) != "none") return Done::kNothing;
  return Becomes(r, {linear->operands[0], linear->operands[1], linear->operands[2]}, node.op,
                 attrs[1]);
}

constexpr Rewrite kMatmulRewrites[] = {
    // clang-format off
    {"add(matmul(x, w), b) -> linear(x, w, b), where w is transposed and b a row", "add", AddOfMatmul},
    {"add(linear(x, w), b) -> linear(x, w, b), where b is a row", "add", AddOfLinear},
    {"relu(matmul(x, w)) -> linear(x, w) with activation, where w is transposed", "relu", ActivationOfMatmul},
    {"relu(linear(x, w, b)) -> linear(x, w, b) with activation", "relu", ActivationOfLinear},
    {"gelu(matmul(x, w)) -> linear(x, w) with activation, where w is transposed", "gelu", ActivationOfMatmul},
    {"gelu(linear(x, w, b)) -> linear(x, w, b) with activation", "gelu", ActivationOfLinear},
    {"gelu_tanh(matmul(x, w)) -> linear(x, w) with activation, where w is transposed", "gelu_tanh", ActivationOfMatmul},
    {"gelu_tanh(linear(x, w, b)) -> linear(x, w, b) with activation", "gelu_tanh", ActivationOfLinear},
    {"silu(matmul(x, w)) -> linear(x, w) with activation, where w is transposed", "silu", ActivationOfMatmul},
    {"silu(linear(x, w, b)) -> linear(x, w, b) with activation", "silu", ActivationOfLinear},
    // clang-format on
};

}  // namespace

std::span<const Rewrite> MatmulRewrites() { return kMatmulRewrites; }

// Not with exact results: a layer rounds 16-bit sums once, after its activation, and kernels of the
// two ops add terms in different orders.
void FuseMatmulEpilogues(PassContext& context) {
  if (context.accuracy != Accuracy::kExact) ApplyRewrites(context, kMatmulRewrites);
}

}  // namespace opwire

// Replaces nodes whose operands are known by their values.
#include <algorithm>
#include <iterator>

#include "ir/passes/constants.h"

namespace opwire {
namespace {

// Whether every kernel of the body gives the same bits: the result of each primitive is exactly
// rounded (ir/ops/expr.h).
bool IsExact(const Expr& body) {
  constexpr Prim kBounded[] = {
      Prim::kPow,   Prim::kAtan2, Prim::kHypot, Prim::kLogAddExp, Prim::kRsqrt, Prim::kExp,
      Prim::kExpm1, Prim::kLog,   Prim::kLog1p, Prim::kLog2,      Prim::kLog10, Prim::kSin,
      Prim::kCos,   Prim::kTan,   Prim::kTanh,  Prim::kErf,       Prim::kAsin,  Prim::kAcos,
      Prim::kSinh,  Prim::kCosh,  Prim::kAsinh, Prim::kAcosh,     Prim::kAtanh};
  return std::ranges::none_of(body.nodes(), [&](const ExprNode& n) {
    return std::ranges::find(kBounded, n.prim) != std::end(kBounded);
  });
}

// Returns the node's result, if it is known.
std::optional<Constant> Known(const Rewriter& r, uint32_t n, const Node& node, Accuracy accuracy) {
  const OpDef& row = r.RowOf(n);
  if (accuracy == Accuracy::kExact && !IsExact(row.body)) return std::nullopt;
  const bool reshape = row.name == "reshape", expand = row.name == "expand",
             permute = row.name == "permute";
  if (row.body.Empty() && !reshape && !expand && !permute) return std::nullopt;
  std::vector<Constant> operands;
  for (ValueId v : node.operands) {
    auto c = v == kAbsent ? std::nullopt : ConstantOf(r, v);
    if (!c) return std::nullopt;
    operands.push_back(*std::move(c));
  }
  const auto shape = KnownShape(r.dims(), node.results[0]);
  if (!row.body.Empty()) return Evaluate(row, r.AttrsOf(n), operands, node.results[0].dtype, shape);
  Constant& x = operands[0];
  if (x.splat) return x;
  if (!reshape || !shape) return std::nullopt;
  x.shape = *shape;
  return x;
}

}  // namespace

void FoldConstants(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      const Node& node = r.Begin(n);
      if (node.pin.empty() && node.results.size() == 1 &&
          node.results[0].encoding == Encoding::kDense) {
        if (const auto known = Known(r, n, node, context.accuracy)) {
          if (r.ReplaceOrTakeBack(AppendConstant(r, node.results[0], *known))) continue;
        }
      }
      r.Keep();
    }
    r.Finish();
  }
}

}  // namespace opwire

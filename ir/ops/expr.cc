// Building and printing scalar expressions.
#include "ir/ops/expr.h"

#include <fmt/format.h>

#include <array>
#include <cassert>

namespace opwire {

const PrimInfo& InfoOf(Prim p) {
  static constexpr std::array<PrimInfo, kPrimCount> kTable = {{
      {"in", 0},    {"attr", 0},   {"const", 0}, {"add", 2},   {"sub", 2},   {"mul", 2},
      {"div", 2},   {"rem", 2},    {"pow", 2},   {"atan2", 2}, {"hypot", 2}, {"logaddexp", 2},
      {"min", 2},   {"max", 2},    {"and", 2},   {"or", 2},    {"xor", 2},   {"shl", 2},
      {"shr", 2},   {"eq", 2},     {"ne", 2},    {"lt", 2},    {"le", 2},    {"gt", 2},
      {"ge", 2},    {"select", 3}, {"not", 1},   {"neg", 1},   {"abs", 1},   {"sign", 1},
      {"sqrt", 1},  {"rsqrt", 1},  {"recip", 1}, {"exp", 1},   {"expm1", 1}, {"log", 1},
      {"log1p", 1}, {"log2", 1},   {"log10", 1}, {"sin", 1},   {"cos", 1},   {"tan", 1},
      {"tanh", 1},  {"erf", 1},    {"asin", 1},  {"acos", 1},  {"sinh", 1},  {"cosh", 1},
      {"asinh", 1}, {"acosh", 1},  {"atanh", 1}, {"floor", 1}, {"ceil", 1},  {"round", 1},
      {"trunc", 1}, {"isnan", 1},  {"isinf", 1}, {"cast", 1},
  }};
  return kTable[static_cast<size_t>(p)];
}

Expr Expr::Leaf(ExprNode n) {
  Expr e;
  e.nodes_.push_back(n);
  return e;
}

Expr Expr::Apply(Prim p, std::vector<Expr> operands) {
  assert(InfoOf(p).arity == static_cast<int>(operands.size()));
  Expr e;
  for (Expr& o : operands) e.nodes_.insert(e.nodes_.end(), o.nodes_.begin(), o.nodes_.end());
  e.nodes_.push_back({p, 0, 0});
  return e;
}

std::string Expr::ToString(const std::vector<std::string>& operands,
                           const std::vector<std::string>& attrs) const {
  std::vector<std::string> stack;
  for (const ExprNode& n : nodes_) {
    const PrimInfo& info = InfoOf(n.prim);
    std::string s;
    switch (n.prim) {
      case Prim::kIn:
        s = operands[n.index];
        break;
      case Prim::kAttr:
        s = attrs[n.index];
        break;
      case Prim::kConst:
        s = fmt::format("{}", n.value);
        break;
      default: {
        const size_t first = stack.size() - info.arity;
        s = fmt::format("{}({})", info.name, fmt::join(stack.begin() + first, stack.end(), ", "));
        stack.resize(first);
      }
    }
    stack.push_back(std::move(s));
  }
  return stack.empty() ? "" : stack.back();
}

}  // namespace opwire

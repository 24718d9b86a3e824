// Replaces ops by cheaper ones, or removes them, by the table of rules.h.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ir/base/element.h"
#include "ir/passes/constants.h"
#include "ir/passes/pattern.h"

namespace opwire {
namespace {

struct Row {
  const Rule* rule;
  RulePattern pattern;
};

// By the op that a node must have.
const std::unordered_map<std::string_view, std::vector<Row>>& RuleTable() {
  static const auto* const table = [] {
    auto* const out = new std::unordered_map<std::string_view, std::vector<Row>>();
    for (const Rule& rule : Rules()) {
      RulePattern pattern = ParseRule(rule.text);
      (*out)[rule.text.substr(0, rule.text.find('('))].push_back({&rule, std::move(pattern)});
    }
    return out;
  }();
  return *table;
}

// The smallest normal number of a float type.
double SmallestNormal(DType type) {
  switch (type) {
    case DType::kF64:
      return 0x1p-1022;
    case DType::kF16:
      return 0x1p-14;
    default:
      return 0x1p-126;  // f32, and bf16
  }
}

// The value rounded to the type.
double RoundedTo(DType type, double value) {
  const uint64_t bits = ElementBits(type, value);
  return ElementValue(type, &bits);
}

bool Fits(Constants asked, const Rewriter& r, const NamedValues& bindings) {
  if (asked == Constants::kAny) return true;
  DType type = DType::kInvalid;
  const auto value_of = [&](std::string_view name) {
    const auto c = ConstantOf(r, std::ranges::find(bindings, name, &Bound::name)->value);
    type = c->dtype;
    return ElementValue(type, c->bytes.data());
  };
  if (asked == Constants::kProduct) {
    const double c1 = value_of("c1"), c2 = value_of("c2"), product = RoundedTo(type, c1 * c2);
    return c1 == 0 || c2 == 0 ||
           (std::isfinite(product) && std::abs(product) >= SmallestNormal(type));
  }
  const double value = value_of("c");
  if (!std::isfinite(value) || !std::isfinite(1 / value)) return false;
  const double reciprocal = RoundedTo(type, 1 / value);
  if (asked == Constants::kNormal)
    return std::isfinite(reciprocal) &&
           std::min(std::abs(value), std::abs(reciprocal)) >= SmallestNormal(type);
  int exponent;
  return std::abs(std::frexp(value, &exponent)) == 0.5 && reciprocal == 1 / value;
}

// Constants that the pass `constant-fold` cannot join would change places forever.
bool OnlyConstants(const Rewriter& r, const NamedValues& bindings) {
  return std::ranges::find(bindings, "c1", &Bound::name) != bindings.end() &&
         ConstantOf(r, std::ranges::find(bindings, "x", &Bound::name)->value);
}

bool Apply(Rewriter& r, const Row& row, const Node& node, Accuracy allowed) {
  if (!row.rule->types.Has(r.TypeOf(node.operands[0]).dtype) || row.rule->accuracy > allowed)
    return false;
  NamedValues bindings;
  if (!Matches(r, row.pattern.from, node, bindings)) return false;
  if (OnlyConstants(r, bindings)) return false;
  if (!Fits(row.rule->constants, r, bindings)) return false;
  return r.ReplaceOrTakeBack(Build(r, row.pattern.to, bindings, node.results[0]));
}

bool ApplyAny(Rewriter& r, const Node& node, Accuracy allowed) {
  const auto rows = RuleTable().find(node.op);
  if (rows == RuleTable().end() || !node.pin.empty()) return false;
  return std::ranges::any_of(rows->second,
                             [&](const Row& row) { return Apply(r, row, node, allowed); });
}

}  // namespace

void Simplify(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      if (!ApplyAny(r, r.Begin(n), context.accuracy)) r.Keep();
    }
    r.Finish();
  }
}

}  // namespace opwire

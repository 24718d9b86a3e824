// Rules (rules.h) as trees, which are matched against nodes and built as nodes.
#ifndef OPWIRE_IR_PASSES_PATTERN_H_
#define OPWIRE_IR_PASSES_PATTERN_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/passes/rewriter.h"
#include "ir/passes/rules.h"

namespace opwire {

struct RuleTerm {
  enum class Kind : uint8_t { kValue, kConstant, kNumber, kOp };
  Kind kind;
  std::string name;   // kOp: the op; a value's or constant's name
  double number = 0;  // kNumber
  std::vector<RuleTerm> operands;
};

struct RulePattern {
  RuleTerm from, to;  // `from` is an op
};

// The text is our own: if it does not parse, this aborts.
RulePattern ParseRule(std::string_view text);

// Parses one side of a rule. It also aborts on errors.
RuleTerm ParseTerm(std::string_view text);

// The values of names.
struct Bound {
  std::string_view name;
  ValueId value;
};
using NamedValues = std::vector<Bound>;

// Whether the node, whose operands are new values, matches the term.
bool Matches(const Rewriter& r, const RuleTerm& term, const Node& node, NamedValues& bindings);

// Appends the nodes of the term; numbers have the type `type`. kAbsent if that is not possible. A
// term that is only a number has `type`'s shape.
ValueId Build(Rewriter& r, const RuleTerm& term, const NamedValues& bindings,
              const TensorType& type);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PATTERN_H_

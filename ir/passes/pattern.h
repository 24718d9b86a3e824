// Rules (rules.h) read as trees, matched against nodes and built as nodes.
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

// The text is one of ours: where it does not read, this aborts.
RulePattern ParseRule(std::string_view text);

// One side of one. The same holds.
RuleTerm ParseTerm(std::string_view text);

// What names stand for.
struct Bound {
  std::string_view name;
  ValueId value;
};
using NamedValues = std::vector<Bound>;

// Whether the node, whose operands are new values, is what the term says.
bool Matches(const Rewriter& r, const RuleTerm& term, const Node& node, NamedValues& bindings);

// Appends what the term says; numbers are of `type`. kAbsent where it cannot be. A term that is a
// number alone has all of `type`'s shape.
ValueId Build(Rewriter& r, const RuleTerm& term, const NamedValues& bindings,
              const TensorType& type);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PATTERN_H_

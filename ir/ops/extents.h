// The extents that a declaration's signature names: those of a call's shapes, and numbers computed
// from them.
#ifndef OPWIRE_IR_OPS_EXTENTS_H_
#define OPWIRE_IR_OPS_EXTENTS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/declaration.h"

namespace opwire {

// How a signature describes an operand's shape: `extents` extents, after any leading ones if it has
// "...".
struct OperandPattern {
  bool leading = false;
  int extents = 0;
};
StatusOr<std::vector<OperandPattern>> OperandPatterns(const OpDeclaration& declaration);

// Returns the names of a signature's extents, excluding attributes, in order. "..." is among them
// if the signature has leading extents.
StatusOr<std::vector<std::string>> ExtentNames(const OpDeclaration& declaration);
// Returns the shapes of its operands for these extents (and `leading` for "..."), a list's for each
// of its elements. INVALID_ARGUMENT if a name has no value.
StatusOr<std::vector<Shape>> OperandShapes(const OpDeclaration& declaration,
                                           const std::map<std::string, int64_t>& extents,
                                           std::span<const int64_t> leading,
                                           std::span<const NamedAttr> attrs);
// The inverse: extents by name, with the product of the leading ones as "...". A name that is no
// operand's extent without an expression has no value. REQUIRES: valid shapes of the signature, one
// for each operand.
StatusOr<std::map<std::string, int64_t>> ExtentsOf(const OpDeclaration& declaration,
                                                   std::span<const Shape> operands);

// A formula is a number computed from named ones by the operators of signatures: "(M * N + 255) /
// 256". INVALID_ARGUMENT with the column if it is not a formula, or with an unknown name.
Status CheckFormula(std::string_view formula, std::span<const std::string> names);
// INVALID_ARGUMENT as CheckFormula, and if a value is negative. OUT_OF_RANGE if an intermediate
// value is beyond all extents, or a divisor is 0.
StatusOr<int64_t> Evaluate(std::string_view formula, const std::map<std::string, int64_t>& values);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_EXTENTS_H_

// The extents that a declaration's signature names: of a call's shapes, and in numbers that are
// computed from them.
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

// How a signature describes an operand's shape: so many extents, after any leading ones where it
// says "...".
struct OperandPattern {
  bool leading = false;
  int extents = 0;
};
StatusOr<std::vector<OperandPattern>> OperandPatterns(const OpDeclaration& declaration);

// The names that a signature has for extents, attributes apart, in order; "..." among them where it
// has leading ones.
StatusOr<std::vector<std::string>> ExtentNames(const OpDeclaration& declaration);
// The shapes of its operands for these extents (and `leading` where it says "..."), a list's for
// each of its elements. INVALID_ARGUMENT where a name has no value.
StatusOr<std::vector<Shape>> OperandShapes(const OpDeclaration& declaration,
                                           const std::map<std::string, int64_t>& extents,
                                           std::span<const int64_t> leading,
                                           std::span<const NamedAttr> attrs);
// The other way: by name, with the product of the leading ones as "...". A name that stands in no
// operand by itself has none. REQUIRES: shapes, one for each operand, that the signature takes.
StatusOr<std::map<std::string, int64_t>> ExtentsOf(const OpDeclaration& declaration,
                                                   std::span<const Shape> operands);

// A formula is a number computed from named ones by the operators of signatures: "(M * N + 255) /
// 256". INVALID_ARGUMENT with the column where it is none, or with the name that is not among
// these.
Status CheckFormula(std::string_view formula, std::span<const std::string> names);
// INVALID_ARGUMENT as CheckFormula, and where a value is negative; OUT_OF_RANGE where one in
// between is beyond all extents, or a divisor is 0.
StatusOr<int64_t> Evaluate(std::string_view formula, const std::map<std::string, int64_t>& values);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_EXTENTS_H_

// Rewrites of ops that compute, as rows of text: what a node looks like, what it becomes, for which
// element types.
//
//   {"sub(x, neg(y)) -> add(x, y)", kArithmetic}
//
// A name beginning with c stands for a constant (one value everywhere), any other name for any
// value; the same name twice is the same value. A number is a constant of that value, -0.0 the
// negative zero. Operands of commutative ops match either way round. The right side is made of
// names and numbers of the left one and of ops.
#ifndef OPWIRE_IR_PASSES_RULES_H_
#define OPWIRE_IR_PASSES_RULES_H_

#include <span>
#include <string_view>

#include "ir/base/dtype.h"
#include "ir/passes/pass.h"

namespace opwire {

// What constants have to be.
enum class Constants : uint8_t {
  kAny,
  kPowerOfTwo,  // c is one whose reciprocal its type has
  kNormal,      // c is a normal number, as its reciprocal is, in its type
  kProduct,     // the product of c1 and c2 is a normal number in their type, or one of them is 0
};

struct Rule {
  std::string_view text;
  DTypeSet types;                        // of the first operand
  Accuracy accuracy = Accuracy::kExact;  // holds where so much, or more, is allowed
  Constants constants = Constants::kAny;
};

std::span<const Rule> Rules();

// Whether the op's two operands may change places.
bool IsCommutative(std::string_view op);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_RULES_H_

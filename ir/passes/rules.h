// Rewrites of ops that compute, as rows of text: what a node looks like, what it becomes, for which element types.
//
//   {"sub(x, neg(y)) -> add(x, y)", kArithmetic}
//
// A name beginning with c stands for a constant (one value everywhere), any other name for any value; the same name twice is the same value. A number is a constant of
// that value, -0.0 the negative zero. Operands of commutative ops match either way round. The right side is made of names and numbers of the left one and of ops.
#ifndef OPWIRE_IR_PASSES_RULES_H_
#define OPWIRE_IR_PASSES_RULES_H_

#include <span>
#include <string_view>

#include "ir/base/dtype.h"
#include "ir/passes/pass.h"

namespace opwire {

// What c has to be.
enum class Divisor : uint8_t {
  kAny,
  kPowerOfTwo,  // one whose reciprocal its type has
  kNormal,      // a normal number, as its reciprocal is, in its type
};

struct Rule {
  std::string_view text;
  DTypeSet types;       // of the first operand
  Accuracy accuracy = Accuracy::kExact;  // holds where so much, or more, is allowed
  Divisor divisor = Divisor::kAny;
};

std::span<const Rule> Rules();

// Whether the op's two operands may change places.
bool IsCommutative(std::string_view op);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_RULES_H_

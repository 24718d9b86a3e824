// Signatures with shapes, as declarations of ops write them (declaration.h says how). Internal to
// ir/ops.
#ifndef OPWIRE_IR_OPS_SIGNATURE_H_
#define OPWIRE_IR_OPS_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dim.h"
#include "ir/base/status.h"

namespace opwire {

// An extent in postfix order.
struct Term {
  enum Kind : uint8_t { kNumber, kName, kAdd, kMul, kDiv, kMod, kMin, kMax } kind;
  int64_t number = 0;
  std::string name = {};
};
using ExtentExpr = std::vector<Term>;

struct Pattern {
  std::string type;
  bool leading = false;  // begins with "..."
  std::vector<ExtentExpr> extents;
};

struct Parameter {
  std::string name;
  bool optional = false, variadic = false;
  Pattern pattern;
};

struct Signature {
  std::vector<Parameter> operands, results;
};

// INVALID_ARGUMENT with the column and what was expected there; at most 64 operands and 4096 bytes.
StatusOr<Signature> ParseSignature(std::string_view text);
// An extent alone: "(M * N + 255) / 256".
StatusOr<ExtentExpr> ParseFormula(std::string_view text);

// Whether the extent is a name and nothing else, which binds it.
inline bool IsName(const ExtentExpr& e) { return e.size() == 1 && e[0].kind == Term::kName; }

// Applies an operator to the last two extents.
void Combine(DimTable& dims, const Term& term, std::vector<Dim>& stack);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_SIGNATURE_H_

// Ops that are not built in: how a user's folder declares an op, how an executor reports it to its
// clients, and its op definition.
//
//   OpDeclaration d{.name = "user.gelu_bias", .signature = "x: T[M, N], bias: T[N] -> y: T[M, N]",
//       .types = {{"T", kFloats}}};
//   OPWIRE_ASSIGN_OR_RETURN(OpDef row, RowOf(d));
//   OPWIRE_ASSIGN_OR_RETURN(auto ops, ExtendCatalogue({row}));   // with the built-in ones
//
// A signature gives shapes, so that an op needs no shape rule:
//
//   "x: T[M, K], w: T[K, N] -> y: T[M, N]"     equal names are equal extents
//   "x: T[..., N] -> y: T[..., N]"             any leading extents, the same wherever '...' stands
//   "x: T[N], bias?: T[N] -> y: T[N]"          an absent operand is allowed
//   "xs...: T[N] -> y: T[N]"                   a list, each element of that shape
//   "ids: i64[B], table: T[V, N] -> y: T[B, N], n: i32[]"
//   "x: T[M, N] -> y: T[M, 2 * N + 1], z: T[min(M, k)]"    + * / (rounding down) % min max; k is an
//                                                          attribute of kind int
#ifndef OPWIRE_IR_OPS_DECLARATION_H_
#define OPWIRE_IR_OPS_DECLARATION_H_

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ops/catalogue.h"

namespace opwire {

inline constexpr std::string_view kUserPrefix = "user.";

struct OpDeclaration {
  std::string name;      // "user." and an identifier without dots
  uint16_t version = 1;  // its meaning never changes: another meaning needs another version
  std::string signature;
  std::vector<TypeVariable> types;  // each that the signature names
  std::vector<AttrSpec>
      attrs;  // int, float, bool, string, dtype, ints or floats; each has a default or is required
  // Operands whose values are positions in [-n, n), with the name of n, an extent of the signature.
  std::vector<std::pair<std::string, std::string>> indices;
  std::string doc;  // one line
};

// INVALID_ARGUMENT reports the error in the declaration, and its place in the signature.
StatusOr<OpDef> RowOf(const OpDeclaration& declaration);

// The form in which an executor reports its ops: a list of objects. Any text is safe to read.
std::string ToJson(std::span<const OpDeclaration> declarations);
StatusOr<std::vector<OpDeclaration>> DeclarationsFromJson(std::string_view json);
// One object, as written in a manifest.
StatusOr<OpDeclaration> DeclarationFromJson(std::string_view json);

// INVALID_ARGUMENT if JSON is nested so deep that a recursive walk over its value could overflow
// the stack. Examines brackets only.
Status CheckJsonDepth(std::string_view text);

// The built-in op definitions and these. ALREADY_EXISTS if two have one name.
StatusOr<std::shared_ptr<const OpCatalogue>> ExtendCatalogue(std::vector<OpDef> rows);
// The same for reports of executors. If two have one name, the first one is used. Invalid
// declarations are ignored.
std::shared_ptr<const OpCatalogue> CatalogueOf(std::span<const OpDeclaration> declarations);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_DECLARATION_H_

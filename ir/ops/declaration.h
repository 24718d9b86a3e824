// Ops that are not built in: how a folder of a user's op declares one, how an executor tells its
// clients of it, and the row that it becomes.
//
//   OpDeclaration d{.name = "user.gelu_bias", .signature = "x: T[M, N], bias: T[N] -> y: T[M, N]",
//       .types = {{"T", kFloats}}};
//   OPWIRE_ASSIGN_OR_RETURN(OpRow row, RowOf(d));
//   OPWIRE_ASSIGN_OR_RETURN(auto ops, ExtendCatalogue({row}));   // beside the built-in ones
//
// A signature gives shapes, so that nobody writes a shape rule:
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
  uint16_t version = 1;  // its meaning never changes: another meaning is another version
  std::string signature;
  std::vector<TypeVariable> types;  // each that the signature names
  std::vector<AttrSpec>
      attrs;  // int, float, bool, string, dtype, ints or floats; all with defaults or required
  // Operands whose values are positions in [-n, n): the name of n, an extent of the signature.
  std::vector<std::pair<std::string, std::string>> indices;
  std::string doc;  // one line
};

// INVALID_ARGUMENT says what in the declaration is wrong, and where in the signature.
StatusOr<OpRow> RowOf(const OpDeclaration& declaration);

// As an executor tells of its ops: a list of objects. Any text is safe to read.
std::string ToJson(std::span<const OpDeclaration> declarations);
StatusOr<std::vector<OpDeclaration>> DeclarationsFromJson(std::string_view json);
// One object, as it stands in a manifest.
StatusOr<OpDeclaration> DeclarationFromJson(std::string_view json);

// INVALID_ARGUMENT where JSON is nested so deep that walking over its value, which recurses, is a
// danger. Looks at brackets only.
Status CheckJsonDepth(std::string_view text);

// The built-in rows and these. ALREADY_EXISTS where two have one name.
StatusOr<std::shared_ptr<const OpCatalogue>> ExtendCatalogue(std::vector<OpRow> rows);
// The same for what executors tell: of two with one name the first holds, and one that is no
// declaration is left out.
std::shared_ptr<const OpCatalogue> CatalogueOf(std::span<const OpDeclaration> declarations);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_DECLARATION_H_

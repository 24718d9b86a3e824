// The verifier: checks a program before any use. It trusts nothing in a Module, except that
// DimTable's own functions built its dimension table. It takes time linear in the module's size.
//
//   StatusOr<Typing> typing = VerifyModule(module, Limits{});
//
// Rules in addition to those of the catalogue:
// - A value is used only after its definition. A dimension parameter is not a value.
// - A function binds every symbol that it uses: the symbol is an extent of a tensor parameter, or a
//   dimension parameter. Called functions need not bind theirs, which are their callers'.
// - A called function takes tensors of exactly the types of the node's operands. Its results have
//   the types that the node's op definition states (Control in ir/ops/catalogue.h). Its parameters
//   are not inout, except for the carried values of a loop's body. Then the result with the
//   parameter's name is the result at its place.
// - Attributes are in the op definition's order and have its kinds (CanonicalAttrs returns that
//   form).
// - A blob of a node has exactly as many bytes as the node's first result.
// - An inout parameter %w is *replaced*: exactly one result of the function has its name. The value
//   of that result comes from a node of this function (the node that consumes %w). It has the type
//   of %w, and is returned under no other name. Nodes before the consuming one, and itself, may
//   read %w. A node after it may not, and %w itself is not returned. The value's storage becomes
//   the parameter's. (A planner that lets a view share %w's bytes counts the view's readers as
//   %w's.)
#ifndef OPWIRE_IR_VERIFY_VERIFY_H_
#define OPWIRE_IR_VERIFY_VERIFY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire {

// A program may reach each limit, but not exceed it.
struct Limits {
  int64_t functions = 1024;
  int64_t nodes = 65536;  // of all functions together; and of each function with those of the
                          // functions that it calls, at each call
  int64_t operands = int64_t{1} << 20;
  int64_t params = 65536;
  int64_t results = 65536;
  int64_t call_depth = 32;
  int64_t rank = kMaxRank;
  int64_t attribute_bytes = int64_t{1} << 20;
  int64_t symbols = 1024;
  int64_t dims = int64_t{1} << 20;
  int64_t blobs = 65536;
  int64_t blob_bytes = int64_t{1} << 28;
  int64_t name_bytes = 256;
  int64_t location_bytes = 1024;
  int64_t tensor_bytes = int64_t{1} << 48;
};

// The limits by name, for flags and for an executor's report.
struct LimitRow {
  std::string_view name;
  int64_t Limits::*field;
  std::string_view doc;
};
std::span<const LimitRow> LimitTable();

// Two extents that must be equal for a binding of the symbols, or the run is refused. Each pair
// occurs once in a function, with the first node that requires it.
struct DimConstraint {
  Dim a, b;
  uint32_t node;
  std::string what;  // "inner dimensions"
};

struct NodeTyping {
  const OpDef* row;
  std::vector<AttrValue> attrs;  // all of the op definition, in its order, with defaults
};

// The source of a symbol's value: an extent of a tensor parameter, or a dimension parameter (axis
// -1).
struct SymbolSource {
  int32_t param = -1;  // -1: the function does not use the symbol
  int32_t axis = -1;
  bool operator==(const SymbolSource&) const = default;
};

struct FunctionTyping {
  std::vector<NodeTyping> nodes;
  std::vector<DimConstraint> constraints;
  std::vector<int32_t>
      replaced_by;  // by parameter: the function's result that replaces an inout one; -1 for others
  std::vector<SymbolSource> symbols;  // by symbol of the module
  std::vector<uint32_t> uses;         // the symbols that it and its called functions use
  int64_t all_nodes = 0;              // its nodes, and those of called functions at each call
};

struct Typing {
  std::vector<FunctionTyping> functions;
};

// Verifies the module. INVALID_ARGUMENT; RESOURCE_EXHAUSTED beyond a limit; UNIMPLEMENTED for
// unknown features, ops and versions. Messages name the function, node, op and source location and
// are at most about 1.5 KiB. Adds dimensions of shape rules to module.dims. The typing's op
// definitions are those of `ops`, which outlives it.
StatusOr<Typing> VerifyModule(Module& module, const Limits& limits = {},
                              const OpCatalogue& ops = Catalogue());

}  // namespace opwire

#endif  // OPWIRE_IR_VERIFY_VERIFY_H_

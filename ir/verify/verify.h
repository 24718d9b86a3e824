// The verifier: what holds of a program before anything is done with it. It trusts nothing in a
// Module but that its dimension table was built by DimTable's own functions, and takes time linear
// in the module's size.
//
//   StatusOr<Typing> typing = VerifyModule(module, Limits{});
//
// Rules beside the catalogue's own:
// - A value is used only after it is defined; a dimension parameter is no value.
// - Every symbol that a function uses is bound by it: some tensor parameter has it as an extent, or
//   it is a dimension parameter. Functions that are called need not bind theirs, which are their
//   callers'.
// - A called function takes tensors of exactly the types that the node gives it, and gives those
//   that the node's row states (Control in ir/ops/catalogue.h). Its parameters are not inout, but
//   what a loop's body carries may be: the result of its name is then the one of its place.
// - Attributes stand in the row's order and are of the row's kinds (CanonicalAttrs gives that
//   form).
// - A blob that a node refers to is exactly as long as the node's first result.
// - An inout parameter %w is *replaced*: exactly one result of the function has its name. The value
//   of that result comes from a node of this function (the node that consumes %w), has the type of
//   %w, and is returned under no other name. Nodes before the consuming one, and itself, may read
//   %w and need not; a node after it may not, and %w itself is not returned. The value's storage
//   becomes the parameter's. (A planner that lets a view share %w's bytes counts the view's readers
//   as %w's.)
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

// Each holds at the limit and fails one over.
struct Limits {
  int64_t functions = 1024;
  int64_t nodes = 65536;  // of all functions; and of each with those of the functions that it
                          // calls, at each call
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

// The limits by name, for flags and for what an executor says of itself.
struct LimitRow {
  std::string_view name;
  int64_t Limits::*field;
  std::string_view doc;
};
std::span<const LimitRow> LimitTable();

// Two extents that a binding of the symbols must make equal, or the run is refused; each pair once
// in a function, with the first node that asks for it.
struct DimConstraint {
  Dim a, b;
  uint32_t node;
  std::string what;  // "inner dimensions"
};

struct NodeTyping {
  const OpRow* row;
  std::vector<AttrValue> attrs;  // all of the row, in its order, defaults filled in
};

// Where a symbol's value is read: an extent of a tensor parameter, or a dimension parameter (axis
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
  std::vector<uint32_t> uses;         // the symbols that it and what it calls use
  int64_t all_nodes = 0;              // its nodes, and those of what it calls at each call
};

struct Typing {
  std::vector<FunctionTyping> functions;
};

// INVALID_ARGUMENT, RESOURCE_EXHAUSTED beyond a limit, UNIMPLEMENTED for unknown features, ops and
// versions. Messages name the function, node, op and source location and are at most about 1.5 KiB.
// Adds to module.dims what shape rules make. The typing's rows are those of `ops`, which outlives
// it.
StatusOr<Typing> VerifyModule(Module& module, const Limits& limits = {},
                              const OpCatalogue& ops = Catalogue());

}  // namespace opwire

#endif  // OPWIRE_IR_VERIFY_VERIFY_H_

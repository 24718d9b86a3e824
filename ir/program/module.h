// A program in memory: functions in SSA form over the ops of the catalogue. Built with
// FunctionBuilder (builder.h), read and written as bytes (serialise.h) and as text (ir/text),
// checked by ir/verify.
#ifndef OPWIRE_IR_PROGRAM_MODULE_H_
#define OPWIRE_IR_PROGRAM_MODULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dim.h"
#include "ir/base/type.h"
#include "ir/ops/catalogue.h"

namespace opwire {

// Values of a function are numbered: its parameters first, then the results of its nodes in order.
using ValueId = int32_t;
inline constexpr ValueId kAbsent = -1;

enum class ParamMode : uint8_t {
  kIn = 0,
  kInout = 1,  // consumed by one node; the new value shares its storage
  kDim = 2,  // a dimension: binds a symbol, is no tensor and no value of the SSA numbering's nodes
             // may use it
};

struct Param {
  std::string name;
  ParamMode mode = ParamMode::kIn;
  TensorType type;  // kDim: unused
  Dim dim;          // kDim: a symbol
  bool operator==(const Param&) const = default;
};

struct Node {
  std::string op;
  uint16_t version = 1;
  std::vector<ValueId> operands;  // kAbsent where an optional one is left out
  std::vector<uint32_t>
      segments;  // for rows with lists: how many values each operand of the row has; else empty
  std::vector<NamedAttr> attrs;  // those given, in the row's order
  std::vector<uint32_t> calls;   // functions, for ops that call some
  std::vector<TensorType> results;
  std::string pin;       // a variant's name; empty: free choice
  std::string location;  // of the source, for messages; may be empty
  bool operator==(const Node&) const = default;
};

struct Result {
  std::string name;
  ValueId value = kAbsent;
  bool operator==(const Result&) const = default;
};

struct Function {
  std::string name;
  std::vector<Param> params;
  std::vector<Node> nodes;
  std::vector<Result> results;
  bool operator==(const Function&) const = default;
};

struct Module {
  std::vector<std::string> features;  // an unknown one refuses; none exists yet
  DimTable dims;
  std::vector<std::string> blobs;   // bytes of constants
  std::vector<Function> functions;  // the first is the entry

  // -1: none.
  int FindFunction(std::string_view name) const;
};

// Equal meaning: dimensions are compared as expressions, not by handle.
bool Equal(const Module& a, const Module& b);

// "%x" for a parameter, "%3" for the fourth of all nodes' results: the name that the text form
// prints.
std::string ValueName(const Function& f, ValueId v);

// The type of every value of a function, and where it comes from. A dimension parameter has a
// number but no type: nullptr.
struct ValueTypes {
  explicit ValueTypes(const Function& f);
  size_t size() const { return types.size(); }
  std::vector<const TensorType*> types;  // by ValueId
  std::vector<uint32_t> first_result;    // by node: the id of its first result
};

// The node's operands by type, nullptr where absent.
std::vector<const TensorType*> OperandTypes(const Node& node,
                                            const std::vector<const TensorType*>& values);

}  // namespace opwire

#endif  // OPWIRE_IR_PROGRAM_MODULE_H_

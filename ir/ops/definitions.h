// The op definitions of the catalogue by family, and helpers to write them. Internal to ir/ops.
#ifndef OPWIRE_IR_OPS_DEFINITIONS_H_
#define OPWIRE_IR_OPS_DEFINITIONS_H_

#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ops/catalogue.h"

namespace opwire::definitions {

std::vector<OpDef> ElementwiseOps();
std::vector<OpDef> ShapeOps();
std::vector<OpDef> IndexingOps();
std::vector<OpDef> CreateOps();
std::vector<OpDef> ReduceOps();
std::vector<OpDef> SortOps();
std::vector<OpDef> NormOps();
std::vector<OpDef> NnOps();
std::vector<OpDef> OptimOps();
std::vector<OpDef> QuantOps();
std::vector<OpDef> BlocksOps();
std::vector<OpDef> SamplingOps();
std::vector<OpDef> ConvolutionOps();
std::vector<OpDef> ControlOps();
std::vector<OpAlias> Aliases();

using InferRule = std::function<Status(InferContext&)>;
using CostRule = std::function<OpCost(const CostArgs&)>;

// An op definition as written; Make parses the signature.
struct Spec {
  std::string_view name;
  std::string_view signature;  // as in catalogue.h
  std::vector<AttrSpec> attrs = {};
  std::vector<std::pair<std::string_view, Domain>> domains = {};  // by operand
  InferRule infer;
  Expr body = {};
  Effects effects = Effects::kPure;
  Aliasing aliasing = Aliasing::kNone;
  CostRule cost;
  Control control = Control::kNone;
  std::vector<std::string> calls = {};
  std::string_view family;
  std::string_view doc;
};
// Ends the process if a signature does not parse: op definitions are our own.
OpDef Make(const Spec& spec);

// Attributes.
AttrSpec Required(std::string_view name, AttrKind kind, std::string_view doc);
AttrSpec Optional(std::string_view name, AttrValue fallback, std::string_view doc);
inline AttrValue Int(int64_t v) { return v; }

// Costs.
double Elements(std::span<const int64_t> shape);
// Bytes of all operands and results, all with the width of the first result.
double TrafficBytes(const CostArgs& args);
// `flops` for each element of result 0.
CostRule PerResult(double flops);
// `flops` for each element of operand 0.
CostRule PerOperand(double flops);
// Result 0 is written, and the same number of bytes is read.
OpCost MoveCost(const CostArgs& args);
// Operand 1 is read, and the same number of bytes of operand 0 is replaced.
OpCost UpdateCost(const CostArgs& args);

// Rules that several families share.
Status SameAsFirst(InferContext& c);
// Key operands of random ops: u64[2].
Status RequireKey(InferContext& c, int operand);

}  // namespace opwire::definitions

#endif  // OPWIRE_IR_OPS_DEFINITIONS_H_

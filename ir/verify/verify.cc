// Rules for a module as a whole: features, names, limits, blobs.
#include "ir/verify/verify.h"

#include <algorithm>
#include <unordered_set>

#include "ir/ops/names.h"
#include "ir/verify/checks.h"

namespace opwire {
namespace verify {

Status CheckLimit(int64_t count, int64_t limit, std::string_view what) {
  if (count <= limit) return absl::OkStatus();
  return ResourceExhausted("{}: expected at most {}, got {}", what, limit, count);
}

Status CheckName(std::string_view name, const Limits& limits, std::string_view what) {
  OPWIRE_RETURN_IF_ERROR(
      CheckLimit(static_cast<int64_t>(name.size()), limits.name_bytes, "bytes of a name"));
  if (IsIdentifier(name)) return absl::OkStatus();
  return InvalidArgument("{}: expected a letter or _, then letters, digits, _ and ., got \"{}\"",
                         what, Clip(name));
}

namespace {

// Bytes of an attribute for the limit.
int64_t AttributeBytes(const NamedAttr& a) {
  struct Sizes {
    size_t operator()(const std::string& s) const { return s.size(); }
    size_t operator()(const TensorType& t) const { return 2 + 4 * t.shape.size(); }
    size_t operator()(const Ints& v) const { return 8 * v.size(); }
    size_t operator()(const Doubles& v) const { return 8 * v.size(); }
    size_t operator()(const Bools& v) const { return v.size(); }
    size_t operator()(const DTypes& v) const { return v.size(); }
    size_t operator()(const Dims& v) const { return 4 * v.size(); }
    size_t operator()(const Strings& v) const {
      size_t n = 0;
      for (const std::string& s : v) n += s.size() + 4;
      return n;
    }
    size_t operator()(int64_t) const { return 8; }
    size_t operator()(double) const { return 8; }
    size_t operator()(bool) const { return 1; }
    size_t operator()(DType) const { return 1; }
    size_t operator()(Dim) const { return 4; }
    size_t operator()(BlobRef) const { return 4; }
  };
  return static_cast<int64_t>(a.name.size() + std::visit(Sizes{}, a.value));
}

Status CheckCounts(const Module& m, const Limits& limits) {
  int64_t nodes = 0, operands = 0, params = 0, results = 0, attribute_bytes = 0, blob_bytes = 0;
  for (const Function& f : m.functions) {
    nodes += static_cast<int64_t>(f.nodes.size());
    params += static_cast<int64_t>(f.params.size());
    results += static_cast<int64_t>(f.results.size());
    for (const Node& n : f.nodes) {
      operands += static_cast<int64_t>(n.operands.size() + n.calls.size());
      for (const NamedAttr& a : n.attrs) attribute_bytes += AttributeBytes(a);
    }
  }
  for (const std::string& b : m.blobs) blob_bytes += static_cast<int64_t>(b.size());
  OPWIRE_RETURN_IF_ERROR(
      CheckLimit(static_cast<int64_t>(m.functions.size()), limits.functions, "functions"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(nodes, limits.nodes, "nodes"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(operands, limits.operands, "operands"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(params, limits.params, "parameters"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(results, limits.results, "results"));
  OPWIRE_RETURN_IF_ERROR(
      CheckLimit(attribute_bytes, limits.attribute_bytes, "bytes of attributes"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(static_cast<int64_t>(m.blobs.size()), limits.blobs, "blobs"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(blob_bytes, limits.blob_bytes, "bytes of blobs"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(static_cast<int64_t>(m.dims.symbols().size()), limits.symbols,
                                    "dimension symbols"));
  return CheckLimit(static_cast<int64_t>(m.dims.nodes().size()), limits.dims,
                    "dimension expressions");
}

Status CheckNames(const Module& m, const Limits& limits) {
  if (m.functions.empty()) return InvalidArgument("a program has at least one function, got none");
  std::unordered_set<std::string_view> names;
  for (const Function& f : m.functions) {
    OPWIRE_RETURN_IF_ERROR(CheckName(f.name, limits, "function"));
    if (!names.insert(f.name).second)
      return InvalidArgument("function \"{}\" is defined twice", Clip(f.name));
  }
  for (const DimSymbol& s : m.dims.symbols())
    OPWIRE_RETURN_IF_ERROR(CheckName(s.name, limits, "dimension symbol"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace verify

StatusOr<Typing> VerifyModule(Module& module, const Limits& limits, const OpCatalogue& ops) {
  if (!module.features.empty()) {
    return Unimplemented("program: feature \"{}\" is unknown; this verifier knows none",
                         Clip(module.features[0]));
  }
  OPWIRE_RETURN_IF_ERROR(verify::CheckCounts(module, limits));
  OPWIRE_RETURN_IF_ERROR(verify::CheckNames(module, limits));
  OPWIRE_ASSIGN_OR_RETURN(const verify::CallOrder order, verify::OrderByCalls(module, limits));
  Typing typing;
  std::vector<uint32_t> stamps;
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    OPWIRE_ASSIGN_OR_RETURN(FunctionTyping function,
                            verify::FunctionVerifier(module, i, limits, ops, stamps).Verify());
    function.all_nodes = order.all_nodes[i];
    typing.functions.push_back(std::move(function));
  }
  OPWIRE_RETURN_IF_ERROR(verify::CheckCalledFunctions(module, typing, order.callers_first));
  return typing;
}

}  // namespace opwire

// Rules for one function: definitions, types, attributes, inout parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/ops/names.h"
#include "ir/verify/checks.h"

namespace opwire::verify {

Status Annotate(const Status& s, const std::string& where) {
  constexpr size_t kMaxMessage = 1024;
  if (s.ok()) return s;
  return Status(s.code(), Clip(MessageOf(s), kMaxMessage) + where);
}

std::string PlaceOfNode(const Function& f, const ValueTypes& values, uint32_t node) {
  const Node& n = f.nodes[node];
  const std::string at = n.location.empty() ? "" : " at " + Clip(n.location, 128);
  return fmt::format(" (node {} {} of \"{}\"{})",
                     ValueName(f, static_cast<ValueId>(values.first_result[node])), Clip(n.op),
                     Clip(f.name), at);
}

FunctionVerifier::FunctionVerifier(Module& module, uint32_t function, const Limits& limits,
                                   const OpCatalogue& ops, std::vector<uint32_t>& stamps)
    : module_(module),
      number_(function),
      f_(module.functions[function]),
      limits_(limits),
      ops_(ops),
      stamps_(stamps),
      values_(f_),
      last_read_(f_.params.size(), -1) {}

Status FunctionVerifier::AtFunction(const Status& s) const {
  return Annotate(s, fmt::format(" (\"{}\")", Clip(f_.name)));
}

Status FunctionVerifier::AtNode(const Status& s, uint32_t index) const {
  return s.ok() ? s : Annotate(s, PlaceOfNode(f_, values_, index));
}

StatusOr<FunctionTyping> FunctionVerifier::Verify() {
  OPWIRE_RETURN_IF_ERROR(AtFunction(CheckParams()));
  out_.nodes.reserve(f_.nodes.size());
  for (uint32_t i = 0; i < f_.nodes.size(); ++i) OPWIRE_RETURN_IF_ERROR(AtNode(CheckNode(i), i));
  OPWIRE_RETURN_IF_ERROR(AtFunction(CheckFunctionResults()));
  OPWIRE_RETURN_IF_ERROR(CheckInouts());
  return std::move(out_);
}

Status FunctionVerifier::CheckParams() {
  std::unordered_set<std::string_view> names;
  out_.symbols.resize(module_.dims.symbols().size());
  for (size_t i = 0; i < f_.params.size(); ++i) {
    const Param& p = f_.params[i];
    OPWIRE_RETURN_IF_ERROR(CheckName(p.name, limits_, "parameter"));
    if (!names.insert(p.name).second)
      return InvalidArgument("parameter %{} is defined twice", Clip(p.name));
    const auto bind = [&](Dim d, int axis) {
      SymbolSource& source = out_.symbols[module_.dims.node(d).value];
      if (source.param < 0) source = {static_cast<int32_t>(i), axis};
    };
    if (p.mode == ParamMode::kDim) {
      if (p.type != TensorType{})
        return InvalidArgument("parameter %{}: a dimension has no type", Clip(p.name));
      if (!module_.dims.Has(p.dim) || module_.dims.node(p.dim).kind != DimKind::kSymbol) {
        return InvalidArgument("parameter %{}: expected a dimension symbol, got {}", Clip(p.name),
                               module_.dims.Has(p.dim) ? module_.dims.ToString(p.dim) : "none");
      }
      bind(p.dim, -1);
      continue;
    }
    if (p.mode != ParamMode::kIn && p.mode != ParamMode::kInout) {
      return InvalidArgument("parameter %{}: unknown mode {}", Clip(p.name),
                             static_cast<int>(p.mode));
    }
    if (const Status s = CheckType(p.type); !s.ok())
      return Annotate(s, fmt::format(" for parameter %{}", Clip(p.name)));
    for (int axis = 0; axis < p.type.rank(); ++axis) {
      if (module_.dims.node(p.type.shape[axis]).kind == DimKind::kSymbol)
        bind(p.type.shape[axis], axis);
    }
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckNode(uint32_t index) {
  const Node& n = f_.nodes[index];
  const OpDef* row = ops_.Find(n.op);
  if (row == nullptr) {
    if (const OpAlias* alias = ops_.FindAlias(n.op)) {
      return InvalidArgument("{} is an alias that only the text form takes; the op is {}",
                             alias->alias, alias->name);
    }
    return Unimplemented("unknown op {}{}", Clip(n.op), DidYouMean(ops_.Nearest(n.op)));
  }
  if (n.version != row->version) {
    return Unimplemented("{}: expected version {}, got {}", n.op, row->version, n.version);
  }
  if (n.calls.size() != row->calls.size()) {
    return InvalidArgument(
        "{}: expected {} called functions, got {}", n.op,
        row->calls.empty() ? "no"
                           : fmt::format("{} ({})", row->calls.size(), fmt::join(row->calls, ", ")),
        n.calls.size());
  }
  if (!n.pin.empty()) OPWIRE_RETURN_IF_ERROR(CheckName(n.pin, limits_, "pinned variant"));
  OPWIRE_RETURN_IF_ERROR(CheckLimit(static_cast<int64_t>(n.location.size()), limits_.location_bytes,
                                    "bytes of a location"));
  OPWIRE_RETURN_IF_ERROR(CheckOperands(n, static_cast<ValueId>(values_.first_result[index])));
  for (ValueId v : n.operands) {
    if (v >= 0 && v < static_cast<ValueId>(f_.params.size())) last_read_[v] = index;
  }

  OPWIRE_ASSIGN_OR_RETURN(std::vector<AttrValue> attrs, ResolveAttrs(*row, n.attrs, module_.dims));
  int previous = -1;
  for (const NamedAttr& a : n.attrs) {
    const int i = row->FindAttr(a.name);
    if (i < previous)
      return InvalidArgument("{}: attribute {}: expected the row's order", n.op, a.name);
    if (KindOf(a.value) != row->attrs[i].kind) {
      return InvalidArgument("{}: attribute {}: expected {} as the row has it, got {}", n.op,
                             a.name, AttrKindName(row->attrs[i].kind),
                             AttrKindName(KindOf(a.value)));
    }
    previous = i;
    if (const auto* d = std::get_if<Dim>(&a.value)) OPWIRE_RETURN_IF_ERROR(CheckDim(*d));
    if (const auto* t = std::get_if<TensorType>(&a.value)) OPWIRE_RETURN_IF_ERROR(CheckType(*t));
    if (const auto* list = std::get_if<Dims>(&a.value)) {
      OPWIRE_RETURN_IF_ERROR(CheckLimit(static_cast<int64_t>(list->size()), limits_.rank, "rank"));
      for (Dim d : *list) OPWIRE_RETURN_IF_ERROR(CheckDim(d));
    }
  }

  const std::vector<const TensorType*> operands = OperandTypes(n, values_.types);
  OPWIRE_ASSIGN_OR_RETURN(Inferred inferred,
                          InferTypes(*row, module_.dims, operands, n.segments, attrs, n.results));
  OPWIRE_RETURN_IF_ERROR(CheckResults(n, inferred.results));
  for (InferContext::Constraint& c : inferred.constraints) {
    if (!constrained_.insert(uint64_t{c.a.index} << 32 | c.b.index).second) continue;
    out_.constraints.push_back({c.a, c.b, index, std::move(c.what)});
  }
  out_.nodes.push_back({row, std::move(attrs)});
  return CheckBlobs(n);
}

Status FunctionVerifier::CheckOperands(const Node& n, ValueId defined) {
  for (size_t i = 0; i < n.operands.size(); ++i) {
    const ValueId v = n.operands[i];
    if (v == kAbsent) continue;
    if (v < 0 || v >= defined) {
      return InvalidArgument("{}: operand {} is {}, which is not defined before it", n.op, i,
                             ValueName(f_, v));
    }
    if (values_.types[v] == nullptr) {
      return InvalidArgument("{}: operand {} is {}, which is a dimension and no tensor", n.op, i,
                             ValueName(f_, v));
    }
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckResults(const Node& n, const std::vector<TensorType>& inferred) {
  if (n.results.size() != inferred.size()) {
    return InvalidArgument("{}: expected {} results, got {}", n.op, inferred.size(),
                           n.results.size());
  }
  for (size_t i = 0; i < inferred.size(); ++i) {
    OPWIRE_RETURN_IF_ERROR(CheckType(inferred[i]));
    if (inferred[i] == n.results[i]) continue;
    if (const Status s = CheckType(n.results[i]); !s.ok()) return s;
    return InvalidArgument("{}: result {}: expected {}, got {}", n.op, i,
                           ToString(inferred[i], module_.dims),
                           ToString(n.results[i], module_.dims));
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckBlobs(const Node& n) {
  for (const NamedAttr& a : n.attrs) {
    const auto* ref = std::get_if<BlobRef>(&a.value);
    if (ref == nullptr) continue;
    if (ref->index >= module_.blobs.size()) {
      return InvalidArgument("{}: attribute {}: blob {} is not among the program's {}", n.op,
                             a.name, ref->index, module_.blobs.size());
    }
    std::vector<int64_t> shape;
    for (Dim d : n.results[0].shape) {
      if (!module_.dims.IsConstant(d))
        return InvalidArgument("{}: expected constant extents for bytes", n.op);
      shape.push_back(module_.dims.ConstantValue(d));
    }
    const auto bytes = TensorBytes(n.results[0].dtype, n.results[0].encoding, shape);
    if (!bytes || static_cast<uint64_t>(*bytes) != module_.blobs[ref->index].size()) {
      return InvalidArgument("{}: attribute {}: expected {} bytes for {}, got {}", n.op, a.name,
                             bytes.value_or(-1), ToString(n.results[0], module_.dims),
                             module_.blobs[ref->index].size());
    }
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckFunctionResults() {
  std::unordered_set<std::string_view> names;
  for (const Result& r : f_.results) {
    OPWIRE_RETURN_IF_ERROR(CheckName(r.name, limits_, "result"));
    if (!names.insert(r.name).second)
      return InvalidArgument("result {} is named twice", Clip(r.name));
    if (r.value < 0 || static_cast<size_t>(r.value) >= values_.size() ||
        values_.types[r.value] == nullptr) {
      return InvalidArgument("result {}: {} is no value of the function", Clip(r.name),
                             ValueName(f_, r.value));
    }
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckInouts() {
  out_.replaced_by.assign(f_.params.size(), -1);
  std::unordered_map<std::string_view, int32_t> by_name;
  std::unordered_map<ValueId, int> times_returned;
  for (size_t i = 0; i < f_.results.size(); ++i) {
    by_name[f_.results[i].name] = static_cast<int32_t>(i);
    ++times_returned[f_.results[i].value];
  }
  for (size_t p = 0; p < f_.params.size(); ++p) {
    if (f_.params[p].mode != ParamMode::kInout) continue;
    const auto it = by_name.find(f_.params[p].name);
    const Result* result = it == by_name.end() ? nullptr : &f_.results[it->second];
    OPWIRE_RETURN_IF_ERROR(AtFunction(CheckReplacement(p, result, times_returned)));
    const auto& first = values_.first_result;
    const auto consumer =
        std::upper_bound(first.begin(), first.end(), static_cast<uint32_t>(result->value)) -
        first.begin() - 1;
    if (last_read_[p] > consumer) {
      return AtNode(
          InvalidArgument("inout %{} is used after node {} replaced it", Clip(f_.params[p].name),
                          ValueName(f_, static_cast<ValueId>(first[consumer]))),
          static_cast<uint32_t>(last_read_[p]));
    }
    out_.replaced_by[p] = it->second;
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckReplacement(
    size_t p, const Result* result, const std::unordered_map<ValueId, int>& times_returned) const {
  const Param& param = f_.params[p];
  const std::string name = Clip(param.name);
  if (result == nullptr)
    return InvalidArgument("inout %{}: expected a result of its name, which replaces it", name);
  if (times_returned.contains(static_cast<ValueId>(p))) {
    return InvalidArgument(
        "inout %{} is returned itself; expected a node's value that replaces it, or a copy", name);
  }
  const ValueId v = result->value;
  if (static_cast<size_t>(v) < f_.params.size()) {
    return InvalidArgument("inout %{} is replaced by {}; expected a node's value, such as a copy",
                           name, ValueName(f_, v));
  }
  if (*values_.types[v] != param.type) {
    return InvalidArgument("inout %{}: expected {} as its type is, got {} in {}", name,
                           ToString(param.type, module_.dims),
                           ToString(*values_.types[v], module_.dims), ValueName(f_, v));
  }
  if (times_returned.at(v) > 1) {
    return InvalidArgument(
        "inout %{} is replaced by {}, which is returned under another name too; return a copy "
        "there",
        name, ValueName(f_, v));
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckType(const TensorType& type) {
  if (!IsValid(type.dtype))
    return InvalidArgument("element type {} does not exist", static_cast<int>(type.dtype));
  if (static_cast<int>(type.encoding) >= kEncodingCount) {
    return InvalidArgument("encoding {} does not exist", static_cast<int>(type.encoding));
  }
  OPWIRE_RETURN_IF_ERROR(CheckLimit(type.rank(), limits_.rank, "rank"));
  std::vector<int64_t> least;
  for (Dim d : type.shape) {
    OPWIRE_RETURN_IF_ERROR(CheckDim(d));
    const DimBounds bounds = module_.dims.Bounds(d);
    // A tensor that fits only if a symbol is 0 is useless: overflow is checked with 1.
    least.push_back(std::clamp<int64_t>(1, bounds.lower, std::max(bounds.lower, bounds.upper)));
  }
  const BlockLayout block = LayoutOf(type.dtype, type.encoding);
  if (block.elements > 1) {
    if (least.empty())
      return InvalidArgument("{}: an encoded tensor has rows, got rank 0",
                             ToString(type, module_.dims));
    if (!module_.dims.IsConstant(type.shape.back())) {
      least.back() = block.elements;
    } else if (least.back() % block.elements != 0) {
      return InvalidArgument("{}: expected rows of whole blocks of {}",
                             ToString(type, module_.dims), block.elements);
    }
  }
  const auto bytes = TensorBytes(type.dtype, type.encoding, least);
  if (!bytes || *bytes > limits_.tensor_bytes) {
    return ResourceExhausted("{}: expected at most {} bytes, got {}", ToString(type, module_.dims),
                             limits_.tensor_bytes,
                             bytes ? fmt::to_string(*bytes) : "more than 2^63");
  }
  return absl::OkStatus();
}

Status FunctionVerifier::CheckDim(Dim d) {
  const DimTable& dims = module_.dims;
  if (!dims.Has(d)) return InvalidArgument("dimension {} does not exist", d.index);
  if (dims.TreeSize(d) > kMaxTreeSize) {
    return ResourceExhausted("dimension expression: expected at most {} terms, got {}",
                             kMaxTreeSize, dims.TreeSize(d));
  }
  const DimBounds bounds = dims.Bounds(d);
  if (bounds.upper < 0 || bounds.lower > kMaxExtent) {
    return InvalidArgument("dimension {}: expected 0 to {}", dims.ToString(d), kMaxExtent);
  }
  return NoteSymbols(d);
}

Status FunctionVerifier::NoteSymbols(Dim d) {
  const DimTable& dims = module_.dims;
  if (stamps_.size() < dims.nodes().size()) stamps_.resize(dims.nodes().size(), UINT32_MAX);
  std::vector<Dim> pending = {d};
  while (!pending.empty()) {
    const Dim at = pending.back();
    pending.pop_back();
    if (stamps_[at.index] == number_) continue;
    stamps_[at.index] = number_;
    const DimNode& n = dims.node(at);
    if (n.kind == DimKind::kFromValue) {
      return Unimplemented("dimension {}: no op of this catalogue makes extents from values",
                           dims.ToString(d));
    }
    if (n.kind == DimKind::kSymbol) out_.uses.push_back(static_cast<uint32_t>(n.value));
    if (n.kind >= DimKind::kAdd) pending.insert(pending.end(), {n.a, n.b});
  }
  return absl::OkStatus();
}

}  // namespace opwire::verify

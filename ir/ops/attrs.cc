// Checks attributes of nodes against the op definition: kinds, defaults, order.
#include <fmt/format.h>

#include "ir/ops/catalogue.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

std::string KnownAttrs(const OpDef& row) {
  if (row.attrs.empty()) return "it takes none";
  std::string out = "it takes ";
  for (const AttrSpec& a : row.attrs) out += (&a == &row.attrs.front() ? "" : ", ") + a.name;
  return out;
}

// Checks that the contents of a value exist: dimensions in the table, element types in the list.
Status CheckContents(const OpDef& row, const AttrSpec& spec, const AttrValue& value,
                     const DimTable& dims) {
  const auto dim = [&](Dim d) {
    if (dims.Has(d)) return absl::OkStatus();
    return InvalidArgument("{}: attribute {}: dimension {} does not exist", row.name, spec.name,
                           d.index);
  };
  const auto dtype = [&](DType t) {
    if (IsValid(t)) return absl::OkStatus();
    return InvalidArgument("{}: attribute {}: element type {} does not exist", row.name, spec.name,
                           static_cast<int>(t));
  };
  if (const auto* d = std::get_if<Dim>(&value)) return dim(*d);
  if (const auto* t = std::get_if<DType>(&value)) return dtype(*t);
  if (const auto* list = std::get_if<Dims>(&value)) {
    for (Dim d : *list) OPWIRE_RETURN_IF_ERROR(dim(d));
  }
  if (const auto* list = std::get_if<DTypes>(&value)) {
    for (DType t : *list) OPWIRE_RETURN_IF_ERROR(dtype(t));
  }
  if (const auto* type = std::get_if<TensorType>(&value)) {
    OPWIRE_RETURN_IF_ERROR(dtype(type->dtype));
    if (static_cast<int>(type->encoding) >= kEncodingCount) {
      return InvalidArgument("{}: attribute {}: encoding {} does not exist", row.name, spec.name,
                             static_cast<int>(type->encoding));
    }
    for (Dim d : type->shape) OPWIRE_RETURN_IF_ERROR(dim(d));
  }
  return absl::OkStatus();
}

StatusOr<AttrValue> Convert(const OpDef& row, const AttrSpec& spec, const AttrValue& value,
                            DimTable& dims) {
  if (KindOf(value) == spec.kind) return value;
  const auto* i = std::get_if<int64_t>(&value);
  const auto* ints = std::get_if<Ints>(&value);
  if (i != nullptr && spec.kind == AttrKind::kFloat) return AttrValue(static_cast<double>(*i));
  if (i != nullptr && spec.kind == AttrKind::kDim) return AttrValue(dims.Constant(*i));
  if (ints != nullptr && spec.kind == AttrKind::kFloats)
    return AttrValue(Doubles(ints->begin(), ints->end()));
  if (ints != nullptr && spec.kind == AttrKind::kDims) {
    Dims out;
    out.reserve(ints->size());
    for (int64_t v : *ints) out.push_back(dims.Constant(v));
    return AttrValue(std::move(out));
  }
  return InvalidArgument("{}: attribute {}: expected {}, got {}", row.name, spec.name,
                         AttrKindName(spec.kind), AttrKindName(KindOf(value)));
}

// Returns one entry for each attribute of the op definition, empty if not given.
StatusOr<std::vector<std::optional<AttrValue>>> Match(const OpDef& row,
                                                      std::span<const NamedAttr> given,
                                                      DimTable& dims) {
  std::vector<std::optional<AttrValue>> out(row.attrs.size());
  for (const NamedAttr& a : given) {
    const int i = row.FindAttr(a.name);
    if (i < 0) {
      std::vector<std::string_view> names;
      for (const AttrSpec& s : row.attrs) names.push_back(s.name);
      return InvalidArgument("{}: unknown attribute {}; {}{}", row.name, Clip(a.name),
                             KnownAttrs(row), DidYouMean(NearestNames(a.name, names)));
    }
    if (out[i])
      return InvalidArgument("{}: attribute {} is given twice", row.name, row.attrs[i].name);
    OPWIRE_ASSIGN_OR_RETURN(out[i], Convert(row, row.attrs[i], a.value, dims));
    OPWIRE_RETURN_IF_ERROR(CheckContents(row, row.attrs[i], *out[i], dims));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i] && !row.attrs[i].fallback) {
      return InvalidArgument("{}: attribute {} ({}) is missing", row.name, row.attrs[i].name,
                             AttrKindName(row.attrs[i].kind));
    }
  }
  return out;
}

}  // namespace

StatusOr<std::vector<AttrValue>> ResolveAttrs(const OpDef& row, std::span<const NamedAttr> given,
                                              DimTable& dims) {
  OPWIRE_ASSIGN_OR_RETURN(std::vector<std::optional<AttrValue>> matched, Match(row, given, dims));
  std::vector<AttrValue> out;
  out.reserve(matched.size());
  for (size_t i = 0; i < matched.size(); ++i)
    out.push_back(matched[i] ? *std::move(matched[i]) : *row.attrs[i].fallback);
  return out;
}

StatusOr<std::vector<NamedAttr>> CanonicalAttrs(const OpDef& row, std::span<const NamedAttr> given,
                                                DimTable& dims) {
  OPWIRE_ASSIGN_OR_RETURN(std::vector<std::optional<AttrValue>> matched, Match(row, given, dims));
  std::vector<NamedAttr> out;
  for (size_t i = 0; i < matched.size(); ++i) {
    if (matched[i]) out.push_back({row.attrs[i].name, *std::move(matched[i])});
  }
  return out;
}

}  // namespace opwire

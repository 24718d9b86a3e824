// Declarations as JSON: the part of a manifest that clients also need.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/ops/declaration.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order of attributes

constexpr size_t kMaxJsonBytes = 1 << 20;
constexpr int kMaxJsonDepth = 64;
constexpr std::string_view kKeys[] = {"name",       "version", "signature", "types",
                                      "attributes", "indices", "doc"};
constexpr AttrKind kAttrKinds[] = {AttrKind::kInt,    AttrKind::kFloat, AttrKind::kBool,
                                   AttrKind::kString, AttrKind::kDType, AttrKind::kInts,
                                   AttrKind::kFloats};

// "expected a string, got 3".
Status Wrong(std::string_view key, std::string_view expected, const Json& got) {
  return InvalidArgument("{}: expected {}, got {}", key, expected,
                         Clip(got.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

StatusOr<std::string> String(const Json& value, std::string_view key) {
  if (!value.is_string()) return Wrong(key, "a string", value);
  return value.get<std::string>();
}

bool IsInt64(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
}

StatusOr<AttrValue> Default(const Json& value, AttrKind kind, std::string_view key) {
  switch (kind) {
    case AttrKind::kInt:
      if (IsInt64(value)) return AttrValue(value.get<int64_t>());
      break;
    case AttrKind::kFloat:
      if (value.is_number()) return AttrValue(value.get<double>());
      break;
    case AttrKind::kBool:
      if (value.is_boolean()) return AttrValue(value.get<bool>());
      break;
    case AttrKind::kString:
      if (value.is_string()) return AttrValue(value.get<std::string>());
      break;
    case AttrKind::kDType:
      if (value.is_string()) {
        if (const auto dtype = ParseDType(value.get<std::string>())) return AttrValue(*dtype);
      }
      break;
    case AttrKind::kInts:
      if (value.is_array() && std::ranges::all_of(value, IsInt64))
        return AttrValue(value.get<Ints>());
      break;
    default:
      if (value.is_array() &&
          std::ranges::all_of(value, [](const Json& v) { return v.is_number(); }))
        return AttrValue(value.get<Doubles>());
      break;
  }
  return Wrong(key, fmt::format("a default of kind {}", AttrKindName(kind)), value);
}

Json DefaultJson(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, DType>) {
          return std::string(DTypeName(v));
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                             std::is_same_v<T, bool> || std::is_same_v<T, std::string> ||
                             std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>) {
          return v;
        } else {
          return nullptr;  // kinds that RowOf refuses
        }
      },
      value);
}

StatusOr<AttrSpec> Attribute(const std::string& name, const Json& value) {
  const std::string key = "attributes." + Clip(name);
  if (!value.is_object()) return Wrong(key, "an object with \"type\"", value);
  AttrSpec spec{.name = name, .doc = name};
  bool typed = false;
  for (const auto& [field, v] : value.items()) {
    if (field == "type") {
      const auto kind = std::ranges::find_if(kAttrKinds, [&, &v = v](AttrKind k) {
        return v.is_string() && v == std::string(AttrKindName(k));
      });
      if (kind == std::end(kAttrKinds))
        return Wrong(key + ".type", "int, float, bool, string, dtype, ints or floats", v);
      spec.kind = *kind;
      typed = true;
    } else if (field == "doc") {
      OPWIRE_ASSIGN_OR_RETURN(spec.doc, String(v, key + ".doc"));
    } else if (field != "default") {
      return InvalidArgument("{}: unknown key '{}'; expected type, default, doc", key, Clip(field));
    }
  }
  if (!typed) return InvalidArgument("{}: \"type\" is missing", key);
  if (const auto it = value.find("default"); it != value.end()) {
    OPWIRE_ASSIGN_OR_RETURN(spec.fallback, Default(*it, spec.kind, key + ".default"));
  }
  return spec;
}

StatusOr<TypeVariable> Variable(const std::string& name, const Json& value) {
  const std::string key = "types." + Clip(name);
  if (!value.is_array() || value.empty()) return Wrong(key, "a list of element types", value);
  TypeVariable variable{name, {}};
  for (const Json& v : value) {
    const auto dtype = v.is_string() ? ParseDType(v.get<std::string>()) : std::nullopt;
    if (!dtype) return Wrong(key, "element types", v);
    variable.types = variable.types | DTypeSet{*dtype};
  }
  return variable;
}

StatusOr<OpDeclaration> Read(const Json& j) {
  if (!j.is_object()) return Wrong("declaration", "an object", j);
  OpDeclaration d;
  for (const auto& [key, value] : j.items()) {
    if (key == "name") {
      OPWIRE_ASSIGN_OR_RETURN(d.name, String(value, key));
    } else if (key == "signature") {
      OPWIRE_ASSIGN_OR_RETURN(d.signature, String(value, key));
    } else if (key == "doc") {
      OPWIRE_ASSIGN_OR_RETURN(d.doc, String(value, key));
    } else if (key == "version") {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT16_MAX)
        return Wrong(key, "1 to 65535", value);
      d.version = value.get<uint16_t>();
    } else if (key == "types" || key == "attributes" || key == "indices") {
      if (!value.is_object()) return Wrong(key, "an object", value);
      for (const auto& [name, v] : value.items()) {
        if (key == "types") {
          OPWIRE_ASSIGN_OR_RETURN(d.types.emplace_back(), Variable(name, v));
        } else if (key == "attributes") {
          OPWIRE_ASSIGN_OR_RETURN(d.attrs.emplace_back(), Attribute(name, v));
        } else {
          OPWIRE_ASSIGN_OR_RETURN(std::string extent, String(v, "indices." + Clip(name)));
          d.indices.emplace_back(name, std::move(extent));
        }
      }
    } else {
      return InvalidArgument("unknown key '{}'{}", Clip(key),
                             DidYouMean(NearestNames(key, {std::begin(kKeys), std::end(kKeys)})));
    }
  }
  if (d.name.empty()) return InvalidArgument("\"name\" is missing");
  if (d.signature.empty()) return InvalidArgument("\"signature\" is missing");
  return d;
}

Json Write(const OpDeclaration& d) {
  Json j{{"name", d.name}, {"version", d.version}, {"signature", d.signature}, {"doc", d.doc}};
  for (const TypeVariable& v : d.types) {
    Json& names = j["types"][v.name] = Json::array();
    for (int t = 1; t < kDTypeCount; ++t) {
      if (v.types.Has(static_cast<DType>(t)))
        names.push_back(std::string(DTypeName(static_cast<DType>(t))));
    }
  }
  for (const AttrSpec& a : d.attrs) {
    Json& attr =
        j["attributes"][a.name] = {{"type", std::string(AttrKindName(a.kind))}, {"doc", a.doc}};
    if (a.fallback) attr["default"] = DefaultJson(*a.fallback);
  }
  for (const auto& [operand, extent] : d.indices) j["indices"][operand] = extent;
  return j;
}

StatusOr<Json> ReadJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    return InvalidArgument("expected at most {} bytes of JSON, got {}", kMaxJsonBytes, text.size());
  OPWIRE_RETURN_IF_ERROR(CheckJsonDepth(text));
  Json j = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (j.is_discarded()) return InvalidArgument("expected JSON, got {}", Clip(text, 32));
  return j;
}

}  // namespace

Status CheckJsonDepth(std::string_view text) {
  int depth = 0;
  for (char c : text) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > kMaxJsonDepth)
      return InvalidArgument("expected JSON nested at most {} deep", kMaxJsonDepth);
  }
  return absl::OkStatus();
}

std::string ToJson(std::span<const OpDeclaration> declarations) {
  Json j = Json::array();
  for (const OpDeclaration& d : declarations) j.push_back(Write(d));
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<OpDeclaration> DeclarationFromJson(std::string_view text) {
  OPWIRE_ASSIGN_OR_RETURN(const Json j, ReadJson(text));
  return Read(j);
}

StatusOr<std::vector<OpDeclaration>> DeclarationsFromJson(std::string_view text) {
  OPWIRE_ASSIGN_OR_RETURN(const Json j, ReadJson(text));
  if (!j.is_array()) return Wrong("declarations", "a list", j);
  std::vector<OpDeclaration> out;
  for (const Json& d : j) {
    OPWIRE_ASSIGN_OR_RETURN(out.emplace_back(), Read(d));
  }
  return out;
}

}  // namespace opwire

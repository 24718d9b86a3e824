// Op definitions whose shape rule follows from a signature.
#include "ir/ops/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "ir/ops/definitions.h"
#include "ir/ops/names.h"
#include "ir/ops/signature.h"

namespace opwire {
namespace {

// The shape rule of a signature.
class ShapeRule {
 public:
  ShapeRule(Signature signature, const OpDef& row) : signature_(std::move(signature)) {
    for (size_t i = 0; i < row.attrs.size(); ++i) {
      if (row.attrs[i].kind == AttrKind::kInt)
        attrs_.emplace(row.attrs[i].name, static_cast<int>(i));
      if (row.attrs[i].kind == AttrKind::kDType)
        type_attrs_.emplace(row.attrs[i].name, static_cast<int>(i));
    }
  }

  // Checks that every name is an extent that some operand binds, or an attribute of kind int.
  Status Check(const OpDef& row) const {
    std::map<std::string, bool, std::less<>> bound;
    bool leading = false;
    for (const Parameter& p : signature_.operands) {
      leading |= p.pattern.leading && !p.optional;
      for (const ExtentExpr& e : p.pattern.extents) {
        if (IsName(e) && !p.optional) bound[e[0].name] = true;
      }
    }
    const auto check = [&](const Parameter& p, bool result) -> Status {
      if (p.pattern.leading && !leading)
        return InvalidArgument(
            "signature: {}: '...' stands for the leading extents of an operand that is always "
            "there",
            p.name);
      for (const ExtentExpr& e : p.pattern.extents) {
        for (const Term& t : e) {
          if (t.kind != Term::kName || bound.contains(t.name) || attrs_.contains(t.name)) continue;
          if (!result && IsName(e))
            continue;  // an optional operand binds it first, for other users of the name
          return InvalidArgument(
              "signature: {}: expected an extent of an operand that is always there, or an "
              "attribute of kind int, got {}",
              p.name, t.name);
        }
      }
      return absl::OkStatus();
    };
    for (const Parameter& p : signature_.operands) OPWIRE_RETURN_IF_ERROR(check(p, false));
    for (const Parameter& p : signature_.results) OPWIRE_RETURN_IF_ERROR(check(p, true));
    for (const ResultSpec& r : row.results) {
      if (!row.Variable(r.type) || type_attrs_.contains(r.type)) continue;
      const bool named = std::ranges::any_of(
          row.operands, [&](const OperandSpec& o) { return o.type == r.type && !o.optional; });
      if (!named)
        return InvalidArgument(
            "signature: {}: expected the type of an operand that is always there, or an attribute "
            "of kind dtype, got {}",
            r.name, r.type);
    }
    return absl::OkStatus();
  }

  bool Binds(std::string_view extent) const {
    if (attrs_.contains(extent)) return false;
    return std::ranges::any_of(signature_.operands, [&](const Parameter& p) {
      return std::ranges::any_of(
          p.pattern.extents, [&](const ExtentExpr& e) { return IsName(e) && e[0].name == extent; });
    });
  }

  Status operator()(InferContext& c) const {
    Names names;
    // Names first, so that an expression may come before the operand that binds it.
    for (const bool binding : {true, false}) {
      for (size_t i = 0; i < signature_.operands.size(); ++i) {
        const Parameter& p = signature_.operands[i];
        if (p.variadic) {
          for (const TensorType* t : c.List(static_cast<int>(i)))
            OPWIRE_RETURN_IF_ERROR(Match(c, p, *t, names, binding));
        } else if (const TensorType* t = c.Operand(static_cast<int>(i))) {
          OPWIRE_RETURN_IF_ERROR(Match(c, p, *t, names, binding));
        }
      }
    }
    for (size_t r = 0; r < signature_.results.size(); ++r) {
      const Parameter& p = signature_.results[r];
      TensorType& t = c.Result(static_cast<int>(r));
      if (const auto attr = type_attrs_.find(p.pattern.type); attr != type_attrs_.end())
        t.dtype = c.Attr<DType>(attr->second);
      if (p.pattern.leading && !names.leading)
        return c.Error(
            fmt::format("the leading extents of {} are not known, for a list is empty", p.name));
      if (p.pattern.leading) t.shape = *names.leading;
      for (const ExtentExpr& e : p.pattern.extents) {
        OPWIRE_ASSIGN_OR_RETURN(const Dim d, Evaluate(c, e, names));
        t.shape.push_back(d);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Names {
    std::map<std::string, Dim, std::less<>> extents;
    std::optional<std::vector<Dim>> leading;
  };

  Status Match(InferContext& c, const Parameter& p, const TensorType& t, Names& names,
               bool binding) const {
    const size_t own = p.pattern.extents.size(), rank = t.shape.size();
    if (p.pattern.leading ? rank < own : rank != own) {
      return c.Error(fmt::format("operand {}: expected rank {}{}, got {}", p.name, own,
                                 p.pattern.leading ? " or more" : "", c.Print(t)));
    }
    const size_t shift = rank - own;
    if (p.pattern.leading && binding) {
      const std::vector<Dim> leading(t.shape.begin(),
                                     t.shape.begin() + static_cast<ptrdiff_t>(shift));
      if (!names.leading) names.leading = leading;
      OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(*names.leading, leading,
                                                  fmt::format("leading extents of {}", p.name)));
    }
    for (size_t i = 0; i < own; ++i) {
      const ExtentExpr& e = p.pattern.extents[i];
      const Dim have = t.shape[shift + i];
      const bool name = IsName(e) && !attrs_.contains(e[0].name);
      if (name != binding) continue;
      Dim expected = have;
      if (name) {
        expected = names.extents.emplace(e[0].name, have).first->second;
      } else {
        OPWIRE_ASSIGN_OR_RETURN(expected, Evaluate(c, e, names));
      }
      OPWIRE_RETURN_IF_ERROR(c.RequireEqual(
          expected, have,
          fmt::format("extents {} of {}", name ? e[0].name : fmt::format("{}", i), p.name)));
    }
    return absl::OkStatus();
  }

  StatusOr<Dim> Evaluate(InferContext& c, const ExtentExpr& e, const Names& names) const {
    std::vector<Dim> stack;
    for (const Term& t : e) {
      if (t.kind == Term::kNumber) {
        stack.push_back(c.dims().Constant(t.number));
        continue;
      }
      if (t.kind == Term::kName) {
        if (const auto it = names.extents.find(t.name); it != names.extents.end()) {
          stack.push_back(it->second);
          continue;
        }
        const auto attr = attrs_.find(t.name);
        if (attr == attrs_.end())
          return c.Error(fmt::format(
              "extent {} is not known, for the operand that has it is absent or an empty list",
              t.name));
        const int64_t value = c.Attr<int64_t>(attr->second);
        if (value < 0 || value > kMaxExtent)
          return c.Error(fmt::format("{}: expected 0 to {}, for it is an extent, got {}", t.name,
                                     kMaxExtent, value));
        stack.push_back(c.dims().Constant(value));
        continue;
      }
      Combine(c.dims(), t, stack);
      if (c.dims().TreeSize(stack.back()) > kMaxTreeSize)
        return c.Error(
            fmt::format("an extent is an expression of more than {} terms", kMaxTreeSize));
    }
    return stack.back();
  }

  Signature signature_;
  std::map<std::string, int, std::less<>> attrs_, type_attrs_;
};

Status CheckLine(std::string_view doc, std::string_view what) {
  const bool control = std::ranges::any_of(
      doc, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
  if (doc.size() <= 512 && !control) return absl::OkStatus();
  return InvalidArgument("{}: expected one line of at most 512 bytes, without control characters",
                         what);
}

Status CheckAttrs(const std::vector<AttrSpec>& attrs) {
  for (size_t i = 0; i < attrs.size(); ++i) {
    const AttrSpec& a = attrs[i];
    if (!IsIdentifier(a.name))
      return InvalidArgument("attribute '{}': expected an identifier", Clip(a.name));
    if (a.doc.empty())
      return InvalidArgument("attribute {}: expected a line of documentation", a.name);
    OPWIRE_RETURN_IF_ERROR(CheckLine(a.doc, "attribute " + a.name));
    for (size_t j = 0; j < i; ++j) {
      if (attrs[j].name == a.name) return InvalidArgument("attribute {} is declared twice", a.name);
    }
    switch (a.kind) {
      case AttrKind::kInt:
      case AttrKind::kFloat:
      case AttrKind::kBool:
      case AttrKind::kString:
      case AttrKind::kDType:
      case AttrKind::kInts:
      case AttrKind::kFloats:
        break;
      default:
        return InvalidArgument(
            "attribute {}: expected int, float, bool, string, dtype, ints or floats, got {}",
            a.name, AttrKindName(a.kind));
    }
    if (a.fallback && KindOf(*a.fallback) != a.kind)
      return InvalidArgument("attribute {}: expected a default of its kind, {}", a.name,
                             AttrKindName(a.kind));
  }
  return absl::OkStatus();
}

Status CheckType(const OpDeclaration& d, const Parameter& p) {
  const std::string& type = p.pattern.type;
  const bool known = ParseDType(type) || std::ranges::any_of(d.types, [&](const TypeVariable& v) {
                       return v.name == type;
                     });
  if (known) return absl::OkStatus();
  return InvalidArgument("signature: {}: expected an element type or a name in \"types\", got {}",
                         p.name, type);
}

}  // namespace

StatusOr<OpDef> RowOf(const OpDeclaration& d) {
  const std::string_view own =
      std::string_view(d.name).substr(std::min(d.name.size(), kUserPrefix.size()));
  if (!d.name.starts_with(kUserPrefix) || !IsIdentifier(own) || own.find('.') != own.npos ||
      d.name.size() > 64) {
    return InvalidArgument("name '{}': expected {} and letters, digits and '_', at most 64 in all",
                           Clip(d.name), kUserPrefix);
  }
  if (d.version == 0) return InvalidArgument("version: expected 1 to 65535, got 0");
  OPWIRE_ASSIGN_OR_RETURN(Signature signature, ParseSignature(d.signature));
  if (signature.results.empty()) return InvalidArgument("signature: expected a result");
  for (const TypeVariable& v : d.types) {
    if (!IsIdentifier(v.name) || ParseDType(v.name))
      return InvalidArgument("types: '{}': expected a name that is no element type", Clip(v.name));
    if (v.types.Empty())
      return InvalidArgument("types: {}: expected at least one element type", v.name);
  }
  OPWIRE_RETURN_IF_ERROR(CheckAttrs(d.attrs));
  OPWIRE_RETURN_IF_ERROR(CheckLine(d.doc, "doc"));

  OpDef row{.name = d.name,
            .version = d.version,
            .attrs = d.attrs,
            .cost = definitions::PerResult(1),
            .family = "user",
            .doc = d.doc.empty() ? "An op of a user's." : d.doc};
  const auto note = [&](const std::string& type) {
    for (const TypeVariable& v : d.types) {
      if (v.name == type && !row.Variable(type)) row.variables.push_back(v);
    }
  };
  std::vector<std::string_view> seen;
  for (const AttrSpec& a : d.attrs) seen.push_back(a.name);
  const auto check = [&](const Parameter& p) -> Status {
    if (std::ranges::find(seen, p.name) != seen.end())
      return InvalidArgument("signature: {} stands twice", p.name);
    seen.push_back(p.name);
    note(p.pattern.type);
    return CheckType(d, p);
  };
  for (const Parameter& p : signature.operands) {
    OPWIRE_RETURN_IF_ERROR(check(p));
    row.operands.push_back({p.name, p.pattern.type, p.optional, p.variadic, Domain::kAny});
  }
  for (const Parameter& p : signature.results) {
    OPWIRE_RETURN_IF_ERROR(check(p));
    row.results.push_back({p.name, p.pattern.type});
  }
  for (const TypeVariable& v : d.types) {
    if (!row.Variable(v.name)) return InvalidArgument("types: {} is not in the signature", v.name);
  }
  ShapeRule rule(std::move(signature), row);
  OPWIRE_RETURN_IF_ERROR(rule.Check(row));
  for (const auto& [operand, extent] : d.indices) {
    const int i = row.FindOperand(operand);
    if (i < 0) return InvalidArgument("indices: the signature has no operand {}", Clip(operand));
    if ((row.TypesOf(row.operands[i].type) - kIndex) != DTypeSet())
      return InvalidArgument("indices: {}: expected i32 or i64, got {}", operand,
                             row.operands[i].type);
    if (!rule.Binds(extent))
      return InvalidArgument("indices: {}: the signature has no extent {}", operand, Clip(extent));
    row.operands[i].domain = Domain::kIndex;
  }
  row.infer = std::move(rule);
  return row;
}

StatusOr<std::shared_ptr<const OpCatalogue>> ExtendCatalogue(std::vector<OpDef> more) {
  std::vector<OpDef> rows = Catalogue().rows();
  for (OpDef& row : more) {
    if (std::ranges::any_of(rows, [&](const OpDef& r) { return r.name == row.name; }))
      return AlreadyExists("two ops are called {}", row.name);
    rows.push_back(std::move(row));
  }
  return std::make_shared<const OpCatalogue>(std::move(rows), Catalogue().aliases());
}

std::shared_ptr<const OpCatalogue> CatalogueOf(std::span<const OpDeclaration> declarations) {
  std::vector<OpDef> rows;
  for (const OpDeclaration& d : declarations) {
    StatusOr<OpDef> row = RowOf(d);
    const bool known = std::ranges::any_of(rows, [&](const OpDef& r) { return r.name == d.name; });
    if (row.ok() && !known) rows.push_back(*std::move(row));
  }
  return *ExtendCatalogue(std::move(rows));
}

}  // namespace opwire

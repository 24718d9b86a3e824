// Converts shapes to extents and back.
#include "ir/ops/extents.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/names.h"
#include "ir/ops/signature.h"

namespace opwire {
namespace {

// Uses the arithmetic of programs, which evaluates an expression of constants.
template <typename F>
StatusOr<int64_t> ValueOf(const ExtentExpr& e, const F& value) {
  DimTable dims;
  std::vector<Dim> stack;
  for (const Term& t : e) {
    if (t.kind == Term::kNumber || t.kind == Term::kName) {
      int64_t n = t.number;
      if (t.kind == Term::kName) {
        OPWIRE_ASSIGN_OR_RETURN(n, value(t.name));
      }
      stack.push_back(dims.Constant(n));
    } else {
      Combine(dims, t, stack);
    }
  }
  return DimValues(dims, {}).Get(stack.back());
}

}  // namespace

StatusOr<std::vector<OperandPattern>> OperandPatterns(const OpDeclaration& d) {
  OPWIRE_ASSIGN_OR_RETURN(const Signature signature, ParseSignature(d.signature));
  std::vector<OperandPattern> out;
  for (const Parameter& p : signature.operands)
    out.push_back({p.pattern.leading, static_cast<int>(p.pattern.extents.size())});
  return out;
}

StatusOr<std::vector<std::string>> ExtentNames(const OpDeclaration& d) {
  OPWIRE_ASSIGN_OR_RETURN(const Signature signature, ParseSignature(d.signature));
  std::vector<std::string> names;
  const auto note = [&](const std::string& name) {
    const bool attr =
        std::ranges::any_of(d.attrs, [&](const AttrSpec& a) { return a.name == name; });
    if (!attr && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const Parameter& p : signature.operands) {
    if (p.pattern.leading) note("...");
    for (const ExtentExpr& e : p.pattern.extents) {
      for (const Term& t : e) {
        if (t.kind == Term::kName) note(t.name);
      }
    }
  }
  return names;
}

StatusOr<std::vector<Shape>> OperandShapes(const OpDeclaration& d,
                                           const std::map<std::string, int64_t>& extents,
                                           std::span<const int64_t> leading,
                                           std::span<const NamedAttr> attrs) {
  OPWIRE_ASSIGN_OR_RETURN(const Signature signature, ParseSignature(d.signature));
  const auto value = [&](const std::string& name) -> StatusOr<int64_t> {
    if (const auto it = extents.find(name); it != extents.end()) return it->second;
    for (const NamedAttr& a : attrs) {
      if (const auto* i = std::get_if<int64_t>(&a.value); i && a.name == name) return *i;
    }
    for (const AttrSpec& a : d.attrs) {
      if (a.name == name && a.fallback && a.kind == AttrKind::kInt)
        return std::get<int64_t>(*a.fallback);
    }
    return InvalidArgument("{}: extent {} has no value", d.name, name);
  };
  std::vector<Shape> shapes;
  for (const Parameter& p : signature.operands) {
    Shape shape;
    if (p.pattern.leading) shape.assign(leading.begin(), leading.end());
    for (const ExtentExpr& e : p.pattern.extents) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t extent, ValueOf(e, value));
      shape.push_back(extent);
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

StatusOr<std::map<std::string, int64_t>> ExtentsOf(const OpDeclaration& d,
                                                   std::span<const Shape> operands) {
  OPWIRE_ASSIGN_OR_RETURN(const Signature signature, ParseSignature(d.signature));
  std::map<std::string, int64_t> extents;
  for (size_t i = 0; i < signature.operands.size(); ++i) {
    const Pattern& p = signature.operands[i].pattern;
    const size_t leading = operands[i].size() - p.extents.size();
    for (size_t a = 0; a < p.extents.size(); ++a) {
      if (IsName(p.extents[a])) extents.emplace(p.extents[a][0].name, operands[i][leading + a]);
    }
    if (!p.leading) continue;
    int64_t product = 1;
    for (size_t a = 0; a < leading; ++a) product *= operands[i][a];
    extents.emplace("...", product);
  }
  return extents;
}

Status CheckFormula(std::string_view formula, std::span<const std::string> names) {
  OPWIRE_ASSIGN_OR_RETURN(const ExtentExpr e, ParseFormula(formula));
  for (const Term& t : e) {
    if (t.kind != Term::kName || std::ranges::find(names, t.name) != names.end()) continue;
    return InvalidArgument("'{}': expected one of {}, got {}", Clip(formula),
                           fmt::join(names, ", "), t.name);
  }
  return absl::OkStatus();
}

StatusOr<int64_t> Evaluate(std::string_view formula, const std::map<std::string, int64_t>& values) {
  OPWIRE_ASSIGN_OR_RETURN(const ExtentExpr e, ParseFormula(formula));
  return ValueOf(e, [&](const std::string& name) -> StatusOr<int64_t> {
    const auto it = values.find(name);
    if (it == values.end()) return InvalidArgument("'{}': {} has no value", Clip(formula), name);
    if (it->second < 0)
      return InvalidArgument("'{}': expected {} of at least 0, got {}", Clip(formula), name,
                             it->second);
    return it->second;
  });
}

}  // namespace opwire

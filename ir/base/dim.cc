// Simplifies, bounds and evaluates dimension expressions.
#include "ir/base/dim.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/base/checked.h"

namespace opwire {
namespace {

int64_t SaturatingAdd(int64_t a, int64_t b) {
  return std::min(kMaxExtent, CheckedAdd(a, b).value_or(kMaxExtent));
}
int64_t SaturatingMul(int64_t a, int64_t b) {
  return std::min(kMaxExtent, CheckedMul(a, b).value_or(kMaxExtent));
}

constexpr int64_t kUndefined = INT64_MIN;

// Binding strength for printing: sums, then products.
int Strength(DimKind kind) {
  switch (kind) {
    case DimKind::kAdd:
      return 1;
    case DimKind::kMul:
    case DimKind::kFloorDiv:
    case DimKind::kMod:
      return 2;
    default:
      return 3;
  }
}

// Returns a product without one of its factors, which is positive. Returns nothing if the tree does
// not show that it is a factor.
std::optional<Dim> Without(DimTable& dims, Dim product, Dim factor) {
  if (product == factor) return dims.Constant(1);
  const DimNode n = dims.node(product);  // a copy: Mul moves the nodes
  if (n.kind == DimKind::kConstant && dims.IsConstant(factor) &&
      n.value % dims.ConstantValue(factor) == 0)
    return dims.Constant(n.value / dims.ConstantValue(factor));
  if (n.kind != DimKind::kMul) return std::nullopt;
  if (const auto rest = Without(dims, n.a, factor)) return dims.Mul(*rest, n.b);
  if (const auto rest = Without(dims, n.b, factor)) return dims.Mul(n.a, *rest);
  return std::nullopt;
}

}  // namespace

Dim DimTable::Intern(const DimNode& node) {
  const auto key =
      std::make_tuple(static_cast<uint8_t>(node.kind), node.value, node.a.index, node.b.index);
  auto [it, added] = index_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
  if (added) {
    facts_.push_back(FactsOf(node));
    nodes_.push_back(node);
  }
  return Dim{it->second};
}

Dim DimTable::Constant(int64_t value) { return Intern({DimKind::kConstant, value, {}, {}}); }

StatusOr<Dim> DimTable::Symbol(std::string_view name, int64_t lower, int64_t upper,
                               int64_t multiple) {
  if (name.empty() || lower < 0 || upper < lower || upper > kMaxExtent || multiple < 1) {
    return InvalidArgument(
        "dimension ?{}: expected 0 <= lower <= upper <= {} and multiple >= 1, got {}, {}, {}", name,
        kMaxExtent, lower, upper, multiple);
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    DimSymbol& s = symbols_[i];
    if (s.name != name) continue;
    if (s != DimSymbol{std::string(name), lower, upper, multiple}) {
      return InvalidArgument(
          "dimension ?{} is declared twice: {}..{} multiple {} and {}..{} multiple {}", name,
          s.lower, s.upper, s.multiple, lower, upper, multiple);
    }
    return Intern({DimKind::kSymbol, static_cast<int64_t>(i), {}, {}});
  }
  symbols_.push_back({std::string(name), lower, upper, multiple});
  return Intern({DimKind::kSymbol, static_cast<int64_t>(symbols_.size() - 1), {}, {}});
}

Dim DimTable::Add(Dim a, Dim b) {
  if (IsConstant(a)) std::swap(a, b);  // constants come last, so equal sums have equal trees
  if (!IsConstant(b) && b.index < a.index) std::swap(a, b);
  if (IsConstant(b)) {
    const int64_t vb = ConstantValue(b);
    if (IsConstant(a)) {
      if (auto sum = CheckedAdd(ConstantValue(a), vb)) return Constant(*sum);
    } else if (vb == 0) {
      return a;
    } else if (const DimNode n = node(a);
               n.kind == DimKind::kAdd && IsConstant(n.b)) {  // a copy: Constant moves the nodes
      if (auto sum = CheckedAdd(ConstantValue(n.b), vb)) return Add(n.a, Constant(*sum));
    }
  }
  return Intern({DimKind::kAdd, 0, a, b});
}

Dim DimTable::Mul(Dim a, Dim b) {
  if (IsConstant(b)) std::swap(a, b);  // constants come first: 2*?b
  if (!IsConstant(a) && b.index < a.index) std::swap(a, b);
  if (IsConstant(a)) {
    const int64_t va = ConstantValue(a);
    if (va == 0) return a;
    if (va == 1) return b;
    if (IsConstant(b)) {
      if (auto product = CheckedMul(va, ConstantValue(b))) return Constant(*product);
    } else if (const DimNode n = node(b); n.kind == DimKind::kMul && IsConstant(n.a)) {
      if (auto product = CheckedMul(va, ConstantValue(n.a))) return Mul(Constant(*product), n.b);
    }
  }
  return Intern({DimKind::kMul, 0, a, b});
}

Dim DimTable::FloorDiv(Dim a, Dim b) {
  // A common factor cancels out if it is never 0: 8*?n // ?n.
  if (Bounds(b).lower > 0 && !IsConstant(b) && TreeSize(a) <= kMaxTreeSize) {
    const DimNode n = node(b);
    if (const auto rest = Without(*this, a, b)) return *rest;
    if (n.kind == DimKind::kMul) {
      if (const auto rest = Without(*this, a, n.a)) return FloorDiv(*rest, n.b);
      if (const auto rest = Without(*this, a, n.b)) return FloorDiv(*rest, n.a);
    }
  }
  if (IsConstant(b)) {
    const int64_t vb = ConstantValue(b);
    if (vb == 1) return a;
    if (vb > 0 && IsConstant(a)) return Constant(ConstantValue(a) / vb);
    const DimNode n = node(a);
    if (vb > 0 && n.kind == DimKind::kMul && IsConstant(n.a) && ConstantValue(n.a) % vb == 0) {
      return Mul(Constant(ConstantValue(n.a) / vb), n.b);
    }
  }
  return Intern({DimKind::kFloorDiv, 0, a, b});
}

Dim DimTable::Mod(Dim a, Dim b) {
  if (IsConstant(b)) {
    const int64_t vb = ConstantValue(b);
    if (vb == 1) return Constant(0);
    if (vb > 0 && IsConstant(a)) return Constant(ConstantValue(a) % vb);
  }
  return Intern({DimKind::kMod, 0, a, b});
}

Dim DimTable::Min(Dim a, Dim b) {
  if (a == b) return a;
  if (b.index < a.index) std::swap(a, b);
  const DimBounds ba = Bounds(a), bb = Bounds(b);
  if (ba.upper <= bb.lower) return a;
  if (bb.upper <= ba.lower) return b;
  return Intern({DimKind::kMin, 0, a, b});
}

Dim DimTable::Max(Dim a, Dim b) {
  if (a == b) return a;
  if (b.index < a.index) std::swap(a, b);
  const DimBounds ba = Bounds(a), bb = Bounds(b);
  if (ba.lower >= bb.upper) return a;
  if (bb.lower >= ba.upper) return b;
  return Intern({DimKind::kMax, 0, a, b});
}

Dim DimTable::FromValue(int64_t value_id, Dim upper_bound) {
  return Intern({DimKind::kFromValue, value_id, upper_bound, {}});
}

StatusOr<Dim> DimTable::Make(const DimNode& n) {
  const bool binary = n.kind >= DimKind::kAdd && n.kind <= DimKind::kMax;
  if ((binary && !(Has(n.a) && Has(n.b))) || (n.kind == DimKind::kFromValue && !Has(n.a))) {
    return InvalidArgument(
        "dimension expression: operands {} and {} are not among the {} before it", n.a.index,
        n.b.index, nodes_.size());
  }
  const int64_t size = (binary || n.kind == DimKind::kFromValue ? TreeSize(n.a) : 0) +
                       (binary ? TreeSize(n.b) : 0) + 1;
  if (size > kMaxTreeSize) {
    return InvalidArgument("dimension expression: expected at most {} terms, got {}", kMaxTreeSize,
                           size);
  }
  switch (n.kind) {
    case DimKind::kConstant:
      return Constant(n.value);
    case DimKind::kSymbol:
      if (n.value < 0 || static_cast<size_t>(n.value) >= symbols_.size()) {
        return InvalidArgument("dimension symbol {} is not among the {} declared", n.value,
                               symbols_.size());
      }
      return Intern({DimKind::kSymbol, n.value, {}, {}});
    case DimKind::kAdd:
      return Add(n.a, n.b);
    case DimKind::kMul:
      return Mul(n.a, n.b);
    case DimKind::kFloorDiv:
      return FloorDiv(n.a, n.b);
    case DimKind::kMod:
      return Mod(n.a, n.b);
    case DimKind::kMin:
      return Min(n.a, n.b);
    case DimKind::kMax:
      return Max(n.a, n.b);
    case DimKind::kFromValue:
      return FromValue(n.value, n.a);
  }
  return InvalidArgument("dimension expression: unknown kind {}", static_cast<int>(n.kind));
}

DimTable::Facts DimTable::FactsOf(const DimNode& n) const {
  const bool binary = n.kind >= DimKind::kAdd && n.kind <= DimKind::kMax;
  const Facts none{{0, 0}, 0};
  const auto& [a, size_a] = binary || n.kind == DimKind::kFromValue ? facts_[n.a.index] : none;
  const auto& [b, size_b] = binary ? facts_[n.b.index] : none;
  Facts f{{0, kMaxExtent}, SaturatingAdd(SaturatingAdd(size_a, size_b), 1)};
  switch (n.kind) {
    case DimKind::kConstant:
      f.bounds = {n.value, n.value};
      break;
    case DimKind::kSymbol:
      f.bounds = {symbols_[n.value].lower, symbols_[n.value].upper};
      break;
    case DimKind::kAdd:
      f.bounds = {SaturatingAdd(a.lower, b.lower), SaturatingAdd(a.upper, b.upper)};
      break;
    case DimKind::kMul:
      if (a.lower < 0 || b.lower < 0)
        f.bounds = {-kMaxExtent, kMaxExtent};
      else
        f.bounds = {SaturatingMul(a.lower, b.lower), SaturatingMul(a.upper, b.upper)};
      break;
    case DimKind::kFloorDiv:
      if (b.lower > 0 && a.lower >= 0) f.bounds = {a.lower / b.upper, a.upper / b.lower};
      break;
    case DimKind::kMod:
      if (b.upper > 0) f.bounds.upper = std::min(a.upper, b.upper - 1);
      break;
    case DimKind::kMin:
      f.bounds = {std::min(a.lower, b.lower), std::min(a.upper, b.upper)};
      break;
    case DimKind::kMax:
      f.bounds = {std::max(a.lower, b.lower), std::max(a.upper, b.upper)};
      break;
    case DimKind::kFromValue:
      f.bounds.upper = a.upper;
      break;
  }
  return f;
}

DimOrder DimTable::Compare(Dim a, Dim b) const {
  if (a == b) return DimOrder::kEqual;
  if (IsConstant(a) && IsConstant(b)) return DimOrder::kDifferent;
  // x+c against x+d.
  const auto split = [&](Dim d) -> std::pair<Dim, int64_t> {
    const DimNode& n = node(d);
    if (n.kind == DimKind::kAdd && IsConstant(n.b)) return {n.a, ConstantValue(n.b)};
    return {d, 0};
  };
  const auto [base_a, offset_a] = split(a);
  const auto [base_b, offset_b] = split(b);
  if (base_a == base_b && offset_a != offset_b) return DimOrder::kDifferent;
  const DimBounds ba = Bounds(a), bb = Bounds(b);
  if (ba.upper < bb.lower || bb.upper < ba.lower) return DimOrder::kDifferent;
  const auto multiple_excludes = [&](Dim symbol, Dim constant) {
    return node(symbol).kind == DimKind::kSymbol && IsConstant(constant) &&
           ConstantValue(constant) % symbols_[node(symbol).value].multiple != 0;
  };
  if (multiple_excludes(a, b) || multiple_excludes(b, a)) return DimOrder::kDifferent;
  return DimOrder::kUnknown;
}

// Nodes come after their operands, so one pass in order evaluates all of them.
DimValues::DimValues(const DimTable& table, std::span<const int64_t> symbol_values)
    : table_(table) {
  values_.reserve(table.nodes().size());
  for (const DimNode& n : table.nodes()) {
    const bool binary = n.kind >= DimKind::kAdd && n.kind <= DimKind::kMax;
    const int64_t a = binary || n.kind == DimKind::kFromValue ? values_[n.a.index] : 0;
    const int64_t b = binary ? values_[n.b.index] : 0;
    std::optional<int64_t> r;
    // A sum may have negative constants. Only the value of an extent must not be negative.
    if (a != kUndefined && b != kUndefined) {
      switch (n.kind) {
        case DimKind::kConstant:
          r = n.value;
          break;
        case DimKind::kSymbol:
          r = symbol_values[n.value];
          break;
        case DimKind::kAdd:
          r = CheckedAdd(a, b);
          break;
        case DimKind::kMul:
          r = CheckedMul(a, b);
          break;
        case DimKind::kFloorDiv:
          if (b > 0 && a >= 0) r = a / b;
          break;
        case DimKind::kMod:
          if (b > 0 && a >= 0) r = a % b;
          break;
        case DimKind::kMin:
          r = std::min(a, b);
          break;
        case DimKind::kMax:
          r = std::max(a, b);
          break;
        case DimKind::kFromValue:
          r = a;
          break;
      }
    }
    values_.push_back(r.value_or(kUndefined));
  }
}

StatusOr<int64_t> DimValues::Get(Dim d) const {
  const int64_t v = values_[d.index];
  if (v < 0 || v > kMaxExtent) {
    return OutOfRange("dimension {} is {} for this binding; expected 0 to {}", table_.ToString(d),
                      v == kUndefined ? "no number" : std::to_string(v), kMaxExtent);
  }
  return v;
}

Status DimTable::CheckSymbol(size_t symbol, int64_t value) const {
  const DimSymbol& s = symbols_[symbol];
  if (value < s.lower || value > s.upper || value % s.multiple != 0) {
    return InvalidArgument("dimension ?{}: expected {} to {}, a multiple of {}, got {}", s.name,
                           s.lower, s.upper, s.multiple, value);
  }
  return absl::OkStatus();
}

std::string DimTable::ToString(Dim d) const {
  if (TreeSize(d) > kMaxTreeSize) return "(...)";
  const DimNode& n = node(d);
  const auto operand = [&](Dim x, bool right) {
    const int own = Strength(n.kind), other = Strength(node(x).kind);
    std::string s = ToString(x);
    return other < own || (right && other == own && own < 3) ? "(" + s + ")" : s;
  };
  switch (n.kind) {
    case DimKind::kConstant:
      return std::to_string(n.value);
    case DimKind::kSymbol:
      return "?" + symbols_[n.value].name;
    case DimKind::kAdd:
      return operand(n.a, false) + "+" + operand(n.b, true);
    case DimKind::kMul:
      return operand(n.a, false) + "*" + operand(n.b, true);
    case DimKind::kFloorDiv:
      return operand(n.a, false) + "//" + operand(n.b, true);
    case DimKind::kMod:
      return operand(n.a, false) + "%" + operand(n.b, true);
    case DimKind::kMin:
      return fmt::format("min({}, {})", ToString(n.a), ToString(n.b));
    case DimKind::kMax:
      return fmt::format("max({}, {})", ToString(n.a), ToString(n.b));
    case DimKind::kFromValue:
      return fmt::format("from(%{}, {})", n.value, ToString(n.a));
  }
  return "?";
}

}  // namespace opwire

// Comparison and numbering of programs.
#include "ir/program/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/ops/names.h"

namespace opwire {
namespace {

// Brings dimensions of another table into one, rebuilt, so that equal expressions get equal handles
// whatever the order in which their tables came by them.
class Importer {
 public:
  Importer(const DimTable& from, DimTable& to) : from_(from), to_(to) {}

  // Nothing for a handle that the table does not have.
  std::optional<Dim> operator()(Dim d) {
    if (!from_.Has(d)) return std::nullopt;
    // Operands come before what uses them, so a pass in order up to d needs no recursion.
    for (; done_.size() <= d.index; done_.push_back(Rebuild(from_.nodes()[done_.size()]))) {
    }
    return done_[d.index];
  }

 private:
  Dim Rebuild(const DimNode& n) {
    switch (n.kind) {
      case DimKind::kConstant:
        return to_.Constant(n.value);
      case DimKind::kSymbol: {
        const DimSymbol& s = from_.symbols()[n.value];
        // The caller has seen that both tables declare the same symbols.
        return to_.Symbol(s.name, s.lower, s.upper, s.multiple).value_or(Dim{});
      }
      case DimKind::kAdd:
        return to_.Add(done_[n.a.index], done_[n.b.index]);
      case DimKind::kMul:
        return to_.Mul(done_[n.a.index], done_[n.b.index]);
      case DimKind::kFloorDiv:
        return to_.FloorDiv(done_[n.a.index], done_[n.b.index]);
      case DimKind::kMod:
        return to_.Mod(done_[n.a.index], done_[n.b.index]);
      case DimKind::kMin:
        return to_.Min(done_[n.a.index], done_[n.b.index]);
      case DimKind::kMax:
        return to_.Max(done_[n.a.index], done_[n.b.index]);
      case DimKind::kFromValue:
        return to_.FromValue(n.value, done_[n.a.index]);
    }
    return {};
  }

  const DimTable& from_;
  DimTable& to_;
  std::vector<Dim> done_;
};

class Comparison {
 public:
  Comparison(const Module& a, const Module& b) : a_(a.dims, shared_), b_(b.dims, shared_) {}

  bool Same(Dim a, Dim b) {
    const auto x = a_(a), y = b_(b);
    return x && y && *x == *y;
  }
  bool Same(const std::vector<Dim>& a, const std::vector<Dim>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](Dim x, Dim y) { return Same(x, y); });
  }
  bool Same(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.encoding == b.encoding && Same(a.shape, b.shape);
  }
  // By bits: NaN is itself, -0 is not 0.
  bool Same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
  bool Same(const Doubles& a, const Doubles& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](double x, double y) { return Same(x, y); });
  }
  template <typename T>
  bool Same(const T& a, const T& b) {
    return a == b;
  }
  bool Same(const AttrValue& a, const AttrValue& b) {
    if (a.index() != b.index()) return false;
    return std::visit(
        [&](const auto& x) { return Same(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
  }
  bool Same(const NamedAttr& a, const NamedAttr& b) {
    return a.name == b.name && Same(a.value, b.value);
  }
  bool Same(const Param& a, const Param& b) {
    return a.name == b.name && a.mode == b.mode &&
           (a.mode == ParamMode::kDim ? Same(a.dim, b.dim) : Same(a.type, b.type));
  }
  bool Same(const Node& a, const Node& b) {
    return a.op == b.op && a.version == b.version && a.operands == b.operands &&
           a.segments == b.segments && All(a.attrs, b.attrs) && a.calls == b.calls &&
           All(a.results, b.results) && a.pin == b.pin && a.location == b.location;
  }
  bool Same(const Function& a, const Function& b) {
    return a.name == b.name && All(a.params, b.params) && All(a.nodes, b.nodes) &&
           a.results == b.results;
  }
  template <typename T>
  bool All(const std::vector<T>& a, const std::vector<T>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const T& x, const T& y) { return Same(x, y); });
  }

 private:
  DimTable shared_;
  Importer a_, b_;
};

}  // namespace

int Module::FindFunction(std::string_view name) const {
  for (size_t i = 0; i < functions.size(); ++i) {
    if (functions[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool Equal(const Module& a, const Module& b) {
  return a.features == b.features && a.dims.symbols() == b.dims.symbols() && a.blobs == b.blobs &&
         Comparison(a, b).All(a.functions, b.functions);
}

std::string ValueName(const Function& f, ValueId v) {
  if (v == kAbsent) return "_";
  const auto params = static_cast<ValueId>(f.params.size());
  return v >= 0 && v < params ? "%" + Clip(f.params[v].name)
                              : fmt::format("%{}", static_cast<int64_t>(v) - params);
}

ValueTypes::ValueTypes(const Function& f) {
  types.reserve(f.params.size() + f.nodes.size());
  first_result.reserve(f.nodes.size());
  for (const Param& p : f.params) types.push_back(p.mode == ParamMode::kDim ? nullptr : &p.type);
  for (const Node& n : f.nodes) {
    first_result.push_back(static_cast<uint32_t>(types.size()));
    for (const TensorType& t : n.results) types.push_back(&t);
  }
}

std::vector<const TensorType*> OperandTypes(const Node& node,
                                            const std::vector<const TensorType*>& values) {
  std::vector<const TensorType*> out;
  out.reserve(node.operands.size());
  for (ValueId v : node.operands) out.push_back(v == kAbsent ? nullptr : values[v]);
  return out;
}

}  // namespace opwire

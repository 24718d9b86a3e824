// Prints programs. Operands without an order of their own (those of a dimension's sum) are printed
// in the order of their text. So equal programs have equal text, independently of the history of
// their dimension tables.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "ir/ops/names.h"
#include "ir/text/text.h"

namespace opwire {
namespace {

std::string Quote(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + '"';
}

// Returns the shortest decimals that parse to the same bits.
std::string FloatText(double v) {
  if (std::isnan(v)) {
    const auto bits = std::bit_cast<uint64_t>(v);
    const auto quiet = std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
    return bits == quiet ? "nan" : fmt::format("nan(0x{:016x})", bits);
  }
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s;
}

class Printer {
 public:
  Printer(const Module& m, const OpCatalogue& ops) : m_(m), ops_(ops) {}

  std::string Print() {
    std::string functions;
    for (size_t i = 0; i < m_.functions.size(); ++i)
      functions += (i ? "\n" : "") + FunctionText(m_.functions[i], i == 0);
    std::string out;
    for (const std::string& f : m_.features) out += "feature " + Quote(f) + "\n";
    out += Symbols();
    if (!out.empty()) out += '\n';
    out += functions;
    for (size_t i = 0; i < m_.blobs.size(); ++i) out += BlobText(i);
    return out;
  }

 private:
  // A single symbol without bounds need not be declared if the function uses it. Several symbols
  // are declared, because their order is that of bindings.
  std::string Symbols() const {
    const std::vector<DimSymbol>& symbols = m_.dims.symbols();
    const auto plain = [](const DimSymbol& s) { return s == DimSymbol{.name = s.name}; };
    if (symbols.size() == 1 && plain(symbols[0]) && printed_symbols_.contains(0)) return "";
    std::string out;
    for (const DimSymbol& s : symbols) {
      out += "dim ?" + s.name;
      if (!plain(s)) out += fmt::format(" in [{}, {}] multiple {}", s.lower, s.upper, s.multiple);
      out += '\n';
    }
    return out;
  }

  std::string FunctionText(const Function& f, bool entry) {
    std::string out = entry ? "program @" : "function @";
    out += f.name + "(";
    for (const Param& p : f.params) out += (&p == &f.params.front() ? "" : ", ") + ParamText(p);
    out += ") -> (";
    const ValueTypes values(f);
    for (const Result& r : f.results) {
      out += (&r == &f.results.front() ? "" : ", ") + r.name;
      const bool known = r.value >= 0 && static_cast<size_t>(r.value) < values.size() &&
                         values.types[r.value] != nullptr;
      if (known) out += ": " + TypeText(*values.types[r.value]);
    }
    out += ") {\n";
    for (size_t i = 0; i < f.nodes.size(); ++i)
      out += NodeText(f, f.nodes[i], static_cast<ValueId>(values.first_result[i]));
    out += "  return";
    for (const Result& r : f.results)
      out += (&r == &f.results.front() ? " " : ", ") + ValueName(f, r.value);
    return out + "\n}\n";
  }

  std::string ParamText(const Param& p) {
    if (p.mode == ParamMode::kDim) return "dim %" + p.name + ": " + DimText(p.dim);
    return (p.mode == ParamMode::kInout ? "inout %" : "%") + p.name + ": " + TypeText(p.type);
  }

  std::string NodeText(const Function& f, const Node& n, ValueId first) {
    std::string out = "  ";
    for (size_t i = 0; i < n.results.size(); ++i)
      out += (i ? ", " : "") + ValueName(f, first + static_cast<ValueId>(i));
    if (!n.results.empty()) out += " = ";
    out += n.op;
    const OpDef* row = ops_.Find(n.op);
    if (row == nullptr || row->version != n.version) out += fmt::format(":v{}", n.version);
    if (!n.pin.empty()) out += "@" + n.pin;
    out += "(" + OperandsText(f, n, row) + ")";
    if (!n.calls.empty()) {
      out += " calls(";
      for (size_t i = 0; i < n.calls.size(); ++i) {
        const bool known = n.calls[i] < m_.functions.size();
        out += (i ? ", @" : "@") +
               (known ? m_.functions[n.calls[i]].name : fmt::to_string(n.calls[i]));
      }
      out += ")";
    }
    if (row != nullptr && row->DeclaresResults()) {
      out += " -> (";
      for (size_t i = 0; i < n.results.size(); ++i) out += (i ? ", " : "") + TypeText(n.results[i]);
      out += ")";
    }
    if (!n.attrs.empty()) {
      out += " {";
      for (const NamedAttr& a : n.attrs)
        out += (&a == &n.attrs.front() ? "" : ", ") + a.name + " = " + AttrText(a.value);
      out += "}";
    }
    if (!n.location.empty()) out += " loc(" + Quote(n.location) + ")";
    return out + "\n";
  }

  std::string OperandsText(const Function& f, const Node& n, const OpDef* row) {
    std::string out;
    size_t next = 0;
    const auto values = [&](size_t count) {
      std::string list;
      for (size_t i = 0; i < count && next < n.operands.size(); ++i)
        list += (i ? ", " : "") + ValueName(f, n.operands[next++]);
      return list;
    };
    if (n.segments.empty()) return values(n.operands.size());
    for (size_t i = 0; i < n.segments.size(); ++i) {
      const bool list = row == nullptr || i >= row->operands.size() || row->operands[i].variadic;
      const std::string text = values(n.segments[i]);
      out += (i ? ", " : "") + (list ? "[" + text + "]" : text);
    }
    return out;
  }

  std::string TypeText(const TensorType& t) {
    std::string out(DTypeName(t.dtype));
    if (t.encoding != Encoding::kDense) out += ":" + std::string(EncodingName(t.encoding));
    return out + ListText(t.shape);
  }

  template <typename T>
  std::string ListText(const std::vector<T>& list) {
    std::string out = "[";
    for (size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + Text(static_cast<T>(list[i]));
    return out + "]";
  }

  std::string Text(int64_t v) { return fmt::to_string(v); }
  std::string Text(double v) { return FloatText(v); }
  std::string Text(bool v) { return v ? "true" : "false"; }
  std::string Text(const std::string& v) { return Quote(v); }
  std::string Text(DType v) { return std::string(DTypeName(v)); }
  std::string Text(Dim v) { return DimText(v); }
  std::string Text(const TensorType& v) { return TypeText(v); }
  std::string Text(BlobRef v) { return fmt::format("#{}", v.index); }
  template <typename T>
  std::string Text(const std::vector<T>& v) {
    return ListText(v);
  }
  std::string AttrText(const AttrValue& v) {
    return std::visit([&](const auto& x) { return Text(x); }, v);
  }

  static int Strength(DimKind kind) {
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

  std::string DimText(Dim d) {
    const DimTable& dims = m_.dims;
    if (!dims.Has(d) || dims.TreeSize(d) > kMaxTreeSize) return "(...)";
    const DimNode& n = dims.node(d);
    switch (n.kind) {
      case DimKind::kConstant:
        return fmt::to_string(n.value);
      case DimKind::kSymbol:
        printed_symbols_.insert(n.value);
        return "?" + dims.symbols()[n.value].name;
      case DimKind::kFromValue:
        return fmt::format("from(%{}, {})", n.value, DimText(n.a));
      default:
        break;
    }
    Dim a = n.a, b = n.b;
    std::string left = DimText(a), right = DimText(b);
    const bool extremum = n.kind == DimKind::kMin || n.kind == DimKind::kMax;
    const bool commutes = n.kind == DimKind::kAdd || n.kind == DimKind::kMul;
    // Constants keep their place in sums and products: 2*?b, ?b+1.
    if ((extremum || (commutes && dims.IsConstant(a) == dims.IsConstant(b))) && right < left) {
      std::swap(a, b);
      std::swap(left, right);
    }
    if (n.kind == DimKind::kMin) return fmt::format("min({}, {})", left, right);
    if (n.kind == DimKind::kMax) return fmt::format("max({}, {})", left, right);
    const int own = Strength(n.kind);
    if (Strength(dims.node(a).kind) < own) left = "(" + left + ")";
    if (Strength(dims.node(b).kind) <= own) right = "(" + right + ")";
    const char* sign = n.kind == DimKind::kAdd        ? "+"
                       : n.kind == DimKind::kMul      ? "*"
                       : n.kind == DimKind::kFloorDiv ? "/"
                                                      : "%";
    return left + sign + right;
  }

  std::string BlobText(size_t index) const {
    constexpr size_t kBytesPerLine = 48;
    const std::string& bytes = m_.blobs[index];
    std::string out = fmt::format("\nblob {} =", index);
    if (bytes.empty()) return out + " \"\"\n";
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i % kBytesPerLine == 0) out += i ? "\"\n  \"" : "\n  \"";
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(bytes[i]);
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
    return out + "\"\n";
  }

  const Module& m_;
  const OpCatalogue& ops_;
  std::set<int64_t> printed_symbols_;
};

}  // namespace

std::string Print(const Module& module, const OpCatalogue& ops) {
  return Printer(module, ops).Print();
}

}  // namespace opwire

// A parser by recursive descent.
#include "ir/ops/signature.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "ir/base/type.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

constexpr size_t kMaxSignatureBytes = 4096;
constexpr size_t kMaxOperands = 64;
constexpr size_t kMaxTerms = 32;  // of one extent

class SignatureParser {
 public:
  SignatureParser(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  StatusOr<Signature> Parse() {
    Signature s;
    OPWIRE_RETURN_IF_ERROR(Parameters(/*results=*/false, s.operands));
    if (!TakeIf("->")) return Expected("',' or '->'");
    OPWIRE_RETURN_IF_ERROR(Parameters(/*results=*/true, s.results));
    if (!Rest().empty()) return Expected("',' or the end");
    return s;
  }

  StatusOr<ExtentExpr> ParseExtent() {
    ExtentExpr e;
    OPWIRE_RETURN_IF_ERROR(Extent(e));
    if (!Rest().empty()) return Expected("an operator or the end");
    return e;
  }

 private:
  std::string_view Rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }
  bool TakeIf(std::string_view mark) {
    if (!Rest().starts_with(mark)) return false;
    at_ += mark.size();
    return true;
  }
  Status Expected(std::string_view what) {
    const std::string_view rest = Rest();
    return InvalidArgument("{}: column {}: expected {}, got {}", what_, at_ + 1, what,
                           rest.empty() ? "the end" : Clip(rest, 16));
  }
  StatusOr<std::string> Name(std::string_view what) {
    const std::string_view rest = Rest();
    size_t n = 0;
    while (n < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[n])) || rest[n] == '_'))
      ++n;
    if (!IsIdentifier(rest.substr(0, n))) return Expected(what);
    at_ += n;
    return std::string(rest.substr(0, n));
  }

  Status Parameters(bool results, std::vector<Parameter>& out) {
    if (Rest().starts_with("->")) return absl::OkStatus();
    do {
      Parameter p;
      OPWIRE_ASSIGN_OR_RETURN(p.name, Name(results ? "a result's name" : "an operand's name"));
      if (!results && TakeIf("...")) p.variadic = true;
      if (!results && TakeIf("?")) p.optional = true;
      if (!TakeIf(":")) return Expected("':'");
      OPWIRE_ASSIGN_OR_RETURN(p.pattern.type, Name("a type"));
      OPWIRE_RETURN_IF_ERROR(Shape(p.pattern));
      out.push_back(std::move(p));
      if (out.size() > kMaxOperands)
        return InvalidArgument("signature: expected at most {} operands and results", kMaxOperands);
    } while (TakeIf(","));
    return absl::OkStatus();
  }

  Status Shape(Pattern& pattern) {
    if (!TakeIf("[")) return Expected("'[' and the extents");
    if (TakeIf("]")) return absl::OkStatus();
    if (TakeIf("...")) {
      pattern.leading = true;
      if (TakeIf("]")) return absl::OkStatus();
      if (!TakeIf(",")) return Expected("',' or ']'");
    }
    do {
      ExtentExpr extent;
      OPWIRE_RETURN_IF_ERROR(Extent(extent));
      pattern.extents.push_back(std::move(extent));
      if (pattern.extents.size() > static_cast<size_t>(kMaxRank))
        return InvalidArgument("signature: column {}: expected at most rank {}", at_ + 1, kMaxRank);
    } while (TakeIf(","));
    if (!TakeIf("]")) return Expected("',', an operator or ']'");
    return absl::OkStatus();
  }

  Status Extent(ExtentExpr& out) {
    OPWIRE_RETURN_IF_ERROR(Sum(out));
    if (out.size() > kMaxTerms)
      return InvalidArgument("{}: column {}: expected an extent of at most {} terms", what_,
                             at_ + 1, kMaxTerms);
    return absl::OkStatus();
  }
  Status Sum(ExtentExpr& out) {
    OPWIRE_RETURN_IF_ERROR(Product(out));
    while (TakeIf("+")) {
      OPWIRE_RETURN_IF_ERROR(Product(out));
      out.push_back({Term::kAdd});
    }
    return absl::OkStatus();
  }
  Status Product(ExtentExpr& out) {
    OPWIRE_RETURN_IF_ERROR(Atom(out));
    while (true) {
      const auto kind = TakeIf("*")   ? Term::kMul
                        : TakeIf("/") ? Term::kDiv
                        : TakeIf("%") ? Term::kMod
                                      : Term::kNumber;
      if (kind == Term::kNumber) return absl::OkStatus();
      OPWIRE_RETURN_IF_ERROR(Atom(out));
      out.push_back({kind});
    }
  }
  Status Atom(ExtentExpr& out) {
    const std::string_view rest = Rest();
    if (TakeIf("(")) {
      if (++depth_ > static_cast<int>(kMaxTerms)) return Expected("less nesting");
      OPWIRE_RETURN_IF_ERROR(Sum(out));
      --depth_;
      return TakeIf(")") ? absl::OkStatus() : Expected("')'");
    }
    if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0]))) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      if (error != std::errc() || number > kMaxExtent)
        return Expected(fmt::format("a number of at most {}", kMaxExtent));
      at_ += static_cast<size_t>(end - rest.data());
      out.push_back({Term::kNumber, number});
      return absl::OkStatus();
    }
    OPWIRE_ASSIGN_OR_RETURN(std::string name, Name("an extent"));
    if ((name != "min" && name != "max") || !TakeIf("(")) {
      out.push_back({Term::kName, 0, std::move(name)});
      return absl::OkStatus();
    }
    if (++depth_ > static_cast<int>(kMaxTerms)) return Expected("less nesting");
    OPWIRE_RETURN_IF_ERROR(Sum(out));
    if (!TakeIf(",")) return Expected("','");
    OPWIRE_RETURN_IF_ERROR(Sum(out));
    --depth_;
    out.push_back({name == "min" ? Term::kMin : Term::kMax});
    return TakeIf(")") ? absl::OkStatus() : Expected("')'");
  }

  std::string_view what_, text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

StatusOr<Signature> ParseSignature(std::string_view text) {
  if (text.size() > kMaxSignatureBytes)
    return InvalidArgument("signature: expected at most {} bytes, got {}", kMaxSignatureBytes,
                           text.size());
  return SignatureParser("signature", text).Parse();
}

StatusOr<ExtentExpr> ParseFormula(std::string_view text) {
  if (text.size() > kMaxSignatureBytes)
    return InvalidArgument("formula: expected at most {} bytes, got {}", kMaxSignatureBytes,
                           text.size());
  return SignatureParser("formula", text).ParseExtent();
}

void Combine(DimTable& dims, const Term& term, std::vector<Dim>& stack) {
  const Dim b = stack.back();
  stack.pop_back();
  Dim& a = stack.back();
  switch (term.kind) {
    case Term::kAdd:
      a = dims.Add(a, b);
      break;
    case Term::kMul:
      a = dims.Mul(a, b);
      break;
    case Term::kDiv:
      a = dims.FloorDiv(a, b);
      break;
    case Term::kMod:
      a = dims.Mod(a, b);
      break;
    case Term::kMin:
      a = dims.Min(a, b);
      break;
    default:
      a = dims.Max(a, b);
      break;
  }
}

}  // namespace opwire

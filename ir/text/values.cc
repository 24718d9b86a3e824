// Reads numbers, strings, types and dimensions.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <limits>

#include "ir/ops/names.h"
#include "ir/text/parser.h"
#include "ir/verify/verify.h"

namespace opwire::text {
namespace {

constexpr int kMaxDepth = 64;

// The value of a hexadecimal digit; -1 for others.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool HexToBytes(std::string_view digits, std::string* bytes) {
  if (digits.size() % 2 != 0) return false;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = HexDigit(digits[i]), low = HexDigit(digits[i + 1]);
    if (high < 0 || low < 0) return false;
    *bytes += static_cast<char>(high * 16 + low);
  }
  return true;
}

template <typename T, typename Read>
StatusOr<std::vector<T>> Parser::ParseList(Read read) {
  OPWIRE_RETURN_IF_ERROR(Expect("["));
  std::vector<T> out;
  while (!TakeIf("]")) {
    if (!out.empty()) OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_ASSIGN_OR_RETURN(T value, (this->*read)());
    out.push_back(std::move(value));
  }
  return out;
}

StatusOr<AttrValue> Parser::ParseAttrValue(AttrKind kind) {
  const auto wrap = [](auto value) -> StatusOr<AttrValue> {
    if (!value.ok()) return value.status();
    return AttrValue(*std::move(value));
  };
  switch (kind) {
    case AttrKind::kInt:
      return wrap(ParseInt());
    case AttrKind::kFloat:
      return wrap(ParseFloat());
    case AttrKind::kBool:
      return wrap(ParseBool());
    case AttrKind::kString:
      return wrap(ParseString());
    case AttrKind::kDType:
      return wrap(ParseElementType());
    case AttrKind::kDim:
      return wrap(ParseDim());
    case AttrKind::kType:
      return wrap(ParseType());
    case AttrKind::kBlob:
      return wrap(ParseBlobRef());
    case AttrKind::kInts:
      return wrap(ParseList<int64_t>(&Parser::ParseInt));
    case AttrKind::kFloats:
      return wrap(ParseList<double>(&Parser::ParseFloat));
    case AttrKind::kBools:
      return wrap(ParseList<bool>(&Parser::ParseBool));
    case AttrKind::kStrings:
      return wrap(ParseList<std::string>(&Parser::ParseString));
    case AttrKind::kDTypes:
      return wrap(ParseList<DType>(&Parser::ParseElementType));
    case AttrKind::kDims:
      return wrap(ParseList<Dim>(&Parser::ParseDim));
  }
  return Unexpected("a value");
}

StatusOr<int64_t> Parser::ParseInt() {
  const size_t offset = Peek().offset;
  std::string digits = TakeIf("-") ? "-" : "";
  if (Peek().kind != TokenKind::kInt) return Unexpected("an integer");
  digits += Peek().text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return ErrorAt(offset,
                   InvalidArgument("expected a decimal integer of 64 bits, got {}", Clip(digits)));
  }
  Take();
  return value;
}

StatusOr<double> Parser::ParseFloat() {
  const size_t offset = Peek().offset;
  const bool negative = TakeIf("-");
  double value = 0;
  if (TakeIf("inf")) {
    value = std::numeric_limits<double>::infinity();
  } else if (TakeIf("nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
    if (TakeIf("(")) {
      std::string_view digits = Peek().text;
      uint64_t bits = 0;
      const bool hex = Peek().kind == TokenKind::kInt && digits.starts_with("0x");
      const auto [end, error] =
          std::from_chars(digits.data() + 2 * hex, digits.data() + digits.size(), bits, 16);
      value = std::bit_cast<double>(bits);
      if (!hex || error != std::errc() || end != digits.data() + digits.size() || value == value)
        return Unexpected("the bits of a NaN");
      Take();
      OPWIRE_RETURN_IF_ERROR(Expect(")"));
    }
  } else if (Peek().kind == TokenKind::kInt || Peek().kind == TokenKind::kFloat) {
    const std::string_view digits = Peek().text;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // A number that rounds to 0 or beyond the range is another than was written.
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return ErrorAt(offset,
                     InvalidArgument("expected a number that f64 holds, got {}", Clip(digits)));
    }
    Take();
  } else {
    return Unexpected("a number");
  }
  return negative ? -value : value;
}

StatusOr<bool> Parser::ParseBool() {
  if (TakeIf("true")) return true;
  if (TakeIf("false")) return false;
  return Unexpected("true or false");
}

StatusOr<std::string> Parser::ParseString() {
  if (Peek().kind != TokenKind::kString) return Unexpected("a string in quotes");
  const std::string_view s = Peek().text;
  std::string out;
  size_t i = 1;
  for (; i < s.size() && s[i] != '"'; ++i) {
    if (s[i] != '\\') {
      out += s[i];
    } else if (i + 1 < s.size() && (s[i + 1] == '"' || s[i + 1] == '\\')) {
      out += s[++i];
    } else if (i + 1 < s.size() && s[i + 1] == 'n') {
      out += '\n';
      ++i;
    } else if (i + 3 < s.size() && s[i + 1] == 'x' && HexDigit(s[i + 2]) >= 0 &&
               HexDigit(s[i + 3]) >= 0) {
      out += static_cast<char>(HexDigit(s[i + 2]) * 16 + HexDigit(s[i + 3]));
      i += 3;
    } else {
      return ErrorAt(Peek().offset + i, InvalidArgument("expected \\\", \\\\, \\n or \\xNN, got {}",
                                                        Clip(s.substr(i, 4))));
    }
  }
  if (i >= s.size())
    return ErrorAt(Peek().offset, InvalidArgument("expected a string that ends on its line"));
  Take();
  return out;
}

StatusOr<DType> Parser::ParseElementType() {
  for (const auto& [name, type] : options_.types) {
    if (Peek().Is(name)) {
      Take();
      return type;
    }
  }
  const auto dtype = Peek().kind == TokenKind::kName ? ParseDType(Peek().text) : std::nullopt;
  if (!dtype) {
    std::vector<std::string_view> names;
    for (int i = 1; i < kDTypeCount; ++i) names.push_back(DTypeName(static_cast<DType>(i)));
    return Unexpected("an element type", DidYouMean(NearestNames(Peek().text, names)));
  }
  Take();
  return *dtype;
}

StatusOr<TensorType> Parser::ParseType() {
  TensorType type;
  OPWIRE_ASSIGN_OR_RETURN(type.dtype, ParseElementType());
  if (TakeIf(":")) {
    const auto encoding =
        Peek().kind == TokenKind::kName ? ParseEncoding(Peek().text) : std::nullopt;
    if (!encoding) return Unexpected("an encoding such as q8_0");
    type.encoding = *encoding;
    Take();
  }
  const size_t offset = Peek().offset;
  OPWIRE_ASSIGN_OR_RETURN(type.shape, ParseList<Dim>(&Parser::ParseDim));
  if (type.rank() > kMaxRank) {
    return ErrorAt(
        offset, ResourceExhausted("expected at most rank {}, got {}", kMaxRank, type.shape.size()));
  }
  return type;
}

StatusOr<BlobRef> Parser::ParseBlobRef() {
  OPWIRE_RETURN_IF_ERROR(Expect("#"));
  const size_t offset = Peek().offset;
  OPWIRE_ASSIGN_OR_RETURN(const int64_t index, ParseInt());
  if (index < 0 || index > UINT32_MAX)
    return ErrorAt(offset, InvalidArgument("expected a blob's number, got {}", index));
  return BlobRef{static_cast<uint32_t>(index)};
}

StatusOr<Dim> Parser::MakeDim(const DimNode& node, size_t offset) {
  StatusOr<Dim> dim = module_.dims.Make(node);
  if (!dim.ok()) return ErrorAt(offset, dim.status());
  return dim;
}

StatusOr<Dim> Parser::ParseDim() {
  if (depth_ >= kMaxDepth) {
    return ErrorAt(
        Peek().offset,
        InvalidArgument("expected at most {} dimensions within each other, got more", kMaxDepth));
  }
  ++depth_;
  StatusOr<Dim> dim = ParseSum();
  --depth_;
  return dim;
}

StatusOr<Dim> Parser::ParseSum() {
  OPWIRE_ASSIGN_OR_RETURN(Dim sum, ParseProduct());
  while (Peek().Is("+")) {
    const size_t offset = Take().offset;
    OPWIRE_ASSIGN_OR_RETURN(const Dim right, ParseProduct());
    OPWIRE_ASSIGN_OR_RETURN(sum, MakeDim({DimKind::kAdd, 0, sum, right}, offset));
  }
  return sum;
}

StatusOr<Dim> Parser::ParseProduct() {
  OPWIRE_ASSIGN_OR_RETURN(Dim product, ParseAtom());
  while (Peek().Is("*") || Peek().Is("/") || Peek().Is("%")) {
    const Token sign = Take();
    const DimKind kind = sign.Is("*")   ? DimKind::kMul
                         : sign.Is("/") ? DimKind::kFloorDiv
                                        : DimKind::kMod;
    OPWIRE_ASSIGN_OR_RETURN(const Dim right, ParseAtom());
    OPWIRE_ASSIGN_OR_RETURN(product, MakeDim({kind, 0, product, right}, sign.offset));
  }
  return product;
}

StatusOr<Dim> Parser::ParseAtom() {
  const size_t offset = Peek().offset;
  if (Peek().Is("?")) return ParseSymbolUse();
  if (TakeIf("(")) {
    OPWIRE_ASSIGN_OR_RETURN(const Dim inner, ParseDim());
    OPWIRE_RETURN_IF_ERROR(Expect(")"));
    return inner;
  }
  if (Peek().Is("min") || Peek().Is("max")) {
    const DimKind kind = Take().Is("min") ? DimKind::kMin : DimKind::kMax;
    OPWIRE_RETURN_IF_ERROR(Expect("("));
    OPWIRE_ASSIGN_OR_RETURN(const Dim left, ParseDim());
    OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_ASSIGN_OR_RETURN(const Dim right, ParseDim());
    OPWIRE_RETURN_IF_ERROR(Expect(")"));
    return MakeDim({kind, 0, left, right}, offset);
  }
  if (TakeIf("from")) {
    OPWIRE_RETURN_IF_ERROR(Expect("("));
    OPWIRE_RETURN_IF_ERROR(Expect("%"));
    OPWIRE_ASSIGN_OR_RETURN(const int64_t id, ParseInt());
    OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_ASSIGN_OR_RETURN(const Dim bound, ParseDim());
    OPWIRE_RETURN_IF_ERROR(Expect(")"));
    return MakeDim({DimKind::kFromValue, id, bound, {}}, offset);
  }
  if (!Peek().Is("-") && Peek().kind != TokenKind::kInt)
    return Unexpected("a dimension such as 64, ?b or min(?b, 8)");
  OPWIRE_ASSIGN_OR_RETURN(const int64_t value, ParseInt());
  return module_.dims.Constant(value);
}

StatusOr<Dim> Parser::ParseSymbolUse() {
  OPWIRE_RETURN_IF_ERROR(Expect("?"));
  const size_t offset = Peek().offset;
  OPWIRE_ASSIGN_OR_RETURN(const std::string_view name, TakeName("a symbol's name"));
  if (const auto it = symbols_.find(name); it != symbols_.end()) return it->second;
  // The table looks a name up in linear time, so their number is bounded before it.
  if (static_cast<int64_t>(symbols_.size()) >= Limits{}.symbols) {
    return ErrorAt(offset, ResourceExhausted("expected at most {} dimension symbols, got more",
                                             Limits{}.symbols));
  }
  OPWIRE_ASSIGN_OR_RETURN(const Dim dim, module_.dims.Symbol(name));
  symbols_[name] = dim;
  return dim;
}

}  // namespace opwire::text

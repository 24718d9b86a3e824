// Reads programs, inferring the types of results as it goes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/ops/names.h"
#include "ir/text/parser.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"

namespace opwire {

StatusOr<Module> Parse(std::string_view text, std::string_view filename,
                       const ParseOptions& options) {
  return text::Parser(text, filename, options).ParseModule();
}

namespace text {

Parser::Parser(std::string_view text, std::string_view filename, const ParseOptions& options)
    : text_(text), filename_(filename), options_(options), token_(NextToken(text, 0)) {}

Token Parser::Take() {
  const Token taken = token_;
  token_ = NextToken(text_, taken.offset + taken.text.size());
  return taken;
}

bool Parser::TakeIf(std::string_view mark) {
  if (!Peek().Is(mark)) return false;
  Take();
  return true;
}

Status Parser::Expect(std::string_view mark) {
  if (TakeIf(mark)) return absl::OkStatus();
  return Unexpected(IsIdentifier(mark) ? std::string(mark) : fmt::format("'{}'", mark));
}

StatusOr<std::string_view> Parser::TakeName(std::string_view what) {
  if (Peek().kind != TokenKind::kName) return Unexpected(what);
  return Take().text;
}

Status Parser::Unexpected(std::string_view what, std::string_view more) const {
  const Token& t = Peek();
  return ErrorAt(t.offset,
                 InvalidArgument("expected {}, got {}{}", what,
                                 t.kind == TokenKind::kEnd ? "the end" : Clip(t.text), more));
}

Status Parser::ErrorAt(size_t offset, const Status& s) const {
  return Status(s.code(), fmt::format("{}:{}: {}", Clip(filename_, 256), Position(text_, offset),
                                      Clip(MessageOf(s), 1024)));
}

StatusOr<Module> Parser::ParseModule() {
  OPWIRE_RETURN_IF_ERROR(ParseHeader());
  OPWIRE_RETURN_IF_ERROR(ParseFunction(/*entry=*/true));
  while (Peek().kind != TokenKind::kEnd) {
    if (Peek().Is("function")) {
      OPWIRE_RETURN_IF_ERROR(ParseFunction(/*entry=*/false));
    } else if (Peek().Is("blob")) {
      OPWIRE_RETURN_IF_ERROR(ParseBlob());
    } else {
      return Unexpected("function, blob or the end");
    }
  }
  std::unordered_map<std::string_view, uint32_t> functions;
  for (uint32_t i = 0; i < module_.functions.size(); ++i)
    functions.emplace(module_.functions[i].name, i);
  for (const Call& call : calls_) {
    const auto it = functions.find(call.callee);
    if (it == functions.end())
      return ErrorAt(call.offset, InvalidArgument("there is no function @{}", Clip(call.callee)));
    module_.functions[call.function].nodes[call.node].calls.push_back(it->second);
  }
  return std::move(module_);
}

Status Parser::ParseHeader() {
  while (true) {
    if (TakeIf("feature")) {
      OPWIRE_ASSIGN_OR_RETURN(std::string feature, ParseString());
      module_.features.push_back(std::move(feature));
    } else if (TakeIf("dim")) {
      OPWIRE_RETURN_IF_ERROR(ParseSymbol());
    } else {
      return absl::OkStatus();
    }
  }
}

// dim ?b in [1, 4096] multiple 8
Status Parser::ParseSymbol() {
  const size_t offset = Peek().offset;
  OPWIRE_RETURN_IF_ERROR(Expect("?"));
  OPWIRE_ASSIGN_OR_RETURN(const std::string_view name, TakeName("a symbol's name"));
  DimSymbol s;
  if (TakeIf("in")) {
    OPWIRE_RETURN_IF_ERROR(Expect("["));
    OPWIRE_ASSIGN_OR_RETURN(s.lower, ParseInt());
    OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_ASSIGN_OR_RETURN(s.upper, ParseInt());
    OPWIRE_RETURN_IF_ERROR(Expect("]"));
  }
  if (TakeIf("multiple")) {
    OPWIRE_ASSIGN_OR_RETURN(s.multiple, ParseInt());
  }
  if (static_cast<int64_t>(symbols_.size()) >= Limits{}.symbols) {
    return ErrorAt(offset, ResourceExhausted("expected at most {} dimension symbols, got more",
                                             Limits{}.symbols));
  }
  const StatusOr<Dim> dim = module_.dims.Symbol(name, s.lower, s.upper, s.multiple);
  if (!dim.ok()) return ErrorAt(offset, dim.status());
  symbols_[name] = *dim;
  return absl::OkStatus();
}

Status Parser::ParseFunction(bool entry) {
  OPWIRE_RETURN_IF_ERROR(Expect(entry ? "program" : "function"));
  OPWIRE_RETURN_IF_ERROR(Expect("@"));
  scope_ = Scope{};
  const size_t offset = Peek().offset;
  OPWIRE_ASSIGN_OR_RETURN(scope_.f.name, TakeName("a function's name"));
  if (static_cast<int64_t>(module_.functions.size()) >= Limits{}.functions) {
    return ErrorAt(
        offset, ResourceExhausted("expected at most {} functions, got more", Limits{}.functions));
  }
  OPWIRE_RETURN_IF_ERROR(Expect("("));
  while (!TakeIf(")")) {
    if (!scope_.f.params.empty()) OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_RETURN_IF_ERROR(ParseParam());
  }
  OPWIRE_RETURN_IF_ERROR(Expect("->"));
  OPWIRE_RETURN_IF_ERROR(Expect("("));
  while (!TakeIf(")")) {
    if (!scope_.f.results.empty()) OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_RETURN_IF_ERROR(ParseResult());
  }
  OPWIRE_RETURN_IF_ERROR(Expect("{"));
  while (!Peek().Is("return")) OPWIRE_RETURN_IF_ERROR(ParseNode());
  OPWIRE_RETURN_IF_ERROR(ParseReturn());
  OPWIRE_RETURN_IF_ERROR(Expect("}"));
  module_.functions.push_back(std::move(scope_.f));
  return absl::OkStatus();
}

Status Parser::Define(const Token& name, ValueId id) {
  if (scope_.values.emplace(name.text, id).second) return absl::OkStatus();
  return ErrorAt(name.offset, InvalidArgument("%{} is defined twice", Clip(name.text)));
}

Status Parser::ParseParam() {
  Param p;
  if (TakeIf("inout")) p.mode = ParamMode::kInout;
  if (TakeIf("dim")) p.mode = ParamMode::kDim;
  OPWIRE_RETURN_IF_ERROR(Expect("%"));
  const Token name = Peek();
  OPWIRE_ASSIGN_OR_RETURN(p.name, TakeName("a parameter's name"));
  OPWIRE_RETURN_IF_ERROR(Expect(":"));
  if (p.mode == ParamMode::kDim) {
    OPWIRE_ASSIGN_OR_RETURN(p.dim, ParseSymbolUse());
  } else {
    OPWIRE_ASSIGN_OR_RETURN(p.type, ParseType());
  }
  OPWIRE_RETURN_IF_ERROR(Define(name, static_cast<ValueId>(scope_.types.size())));
  scope_.types.push_back(p.type);
  scope_.f.params.push_back(std::move(p));
  return absl::OkStatus();
}

Status Parser::ParseResult() {
  Result r;
  OPWIRE_ASSIGN_OR_RETURN(r.name, TakeName("a result's name"));
  TensorType type;
  const size_t offset = Peek().offset;
  if (TakeIf(":")) {
    OPWIRE_ASSIGN_OR_RETURN(type, ParseType());
  }
  scope_.declared.emplace_back(std::move(type), offset);
  scope_.f.results.push_back(std::move(r));
  return absl::OkStatus();
}

StatusOr<ValueId> Parser::ParseValue() {
  OPWIRE_RETURN_IF_ERROR(Expect("%"));
  if (Peek().kind != TokenKind::kName && Peek().kind != TokenKind::kInt)
    return Unexpected("a value's name");
  const Token name = Take();
  const auto it = scope_.values.find(name.text);
  if (it == scope_.values.end())
    return ErrorAt(name.offset, InvalidArgument("%{} is not defined before this", Clip(name.text)));
  if (!IsValid(scope_.types[it->second].dtype)) {
    return ErrorAt(name.offset,
                   InvalidArgument("%{} is a dimension and no tensor", Clip(name.text)));
  }
  return it->second;
}

// %0, %1 = op@variant(operands) calls(@f) -> (types) {attrs} loc("where")
Status Parser::ParseNode() {
  std::vector<Token> names;
  while (names.empty() ? Peek().Is("%") : TakeIf(",")) {
    OPWIRE_RETURN_IF_ERROR(Expect("%"));
    if (Peek().kind != TokenKind::kName && Peek().kind != TokenKind::kInt)
      return Unexpected("a value's name");
    names.push_back(Take());
  }
  if (!names.empty()) OPWIRE_RETURN_IF_ERROR(Expect("="));
  if (Peek().kind != TokenKind::kName)
    return Unexpected(names.empty() ? "a node or return" : "an op");
  const Token op = Take();
  bool swap = false;
  OPWIRE_ASSIGN_OR_RETURN(const OpDef* row, FindOp(op, &swap));
  Node node{.op = row->name, .version = row->version};
  if (TakeIf(":")) {
    if (Peek().text != fmt::format("v{}", row->version))
      return Unexpected(fmt::format("v{}", row->version));
    Take();
  }
  if (TakeIf("@")) {
    OPWIRE_ASSIGN_OR_RETURN(node.pin, TakeName("a variant's name"));
  }
  OPWIRE_ASSIGN_OR_RETURN(Operands operands, ParseOperands(*row));
  if (swap && operands.ids.size() == 2) std::swap(operands.ids[0], operands.ids[1]);
  node.operands = std::move(operands.ids);
  node.segments = std::move(operands.segments);
  OPWIRE_RETURN_IF_ERROR(ParseCalls());
  if (row->DeclaresResults()) {
    OPWIRE_RETURN_IF_ERROR(Expect("->"));
    OPWIRE_RETURN_IF_ERROR(Expect("("));
    while (!TakeIf(")")) {
      if (!node.results.empty()) OPWIRE_RETURN_IF_ERROR(Expect(","));
      OPWIRE_ASSIGN_OR_RETURN(TensorType type, ParseType());
      node.results.push_back(std::move(type));
    }
  }
  OPWIRE_ASSIGN_OR_RETURN(node.attrs, ParseAttrs(*row));
  if (TakeIf("loc")) {
    OPWIRE_RETURN_IF_ERROR(Expect("("));
    OPWIRE_ASSIGN_OR_RETURN(node.location, ParseString());
    OPWIRE_RETURN_IF_ERROR(Expect(")"));
  }
  return Append(*row, std::move(node), op.offset, names);
}

StatusOr<const OpDef*> Parser::FindOp(const Token& name, bool* swap) const {
  std::string_view op = name.text;
  if (const OpAlias* alias = options_.ops.FindAlias(op)) {
    op = alias->name;
    *swap = alias->swap;
  }
  const OpDef* row = options_.ops.Find(op);
  if (row == nullptr) {
    return ErrorAt(name.offset, Unimplemented("unknown op {}{}", Clip(op),
                                              DidYouMean(options_.ops.Nearest(op))));
  }
  return row;
}

StatusOr<Parser::Operands> Parser::ParseOperands(const OpDef& row) {
  Operands out;
  const bool lists = row.HasLists();
  OPWIRE_RETURN_IF_ERROR(Expect("("));
  size_t count = 0;
  for (; !TakeIf(")"); ++count) {
    if (count > 0) OPWIRE_RETURN_IF_ERROR(Expect(","));
    const bool list = count < row.operands.size() && row.operands[count].variadic;
    const size_t before = out.ids.size();
    if (list) {
      if (!Peek().Is("["))
        return Unexpected(
            fmt::format("a list in brackets for operand {}", row.operands[count].name));
      Take();
      while (!TakeIf("]")) {
        if (out.ids.size() > before) OPWIRE_RETURN_IF_ERROR(Expect(","));
        OPWIRE_ASSIGN_OR_RETURN(const ValueId id, ParseValue());
        out.ids.push_back(id);
      }
    } else if (TakeIf("_")) {
      out.ids.push_back(kAbsent);
    } else {
      OPWIRE_ASSIGN_OR_RETURN(const ValueId id, ParseValue());
      out.ids.push_back(id);
    }
    if (lists) out.segments.push_back(static_cast<uint32_t>(out.ids.size() - before));
  }
  // Optional operands at the end may be left out.
  for (; count < row.operands.size() && row.operands[count].optional; ++count) {
    out.ids.push_back(kAbsent);
    if (lists) out.segments.push_back(1);
  }
  return out;
}

Status Parser::ParseCalls() {
  if (!TakeIf("calls")) return absl::OkStatus();
  OPWIRE_RETURN_IF_ERROR(Expect("("));
  for (bool first = true; !TakeIf(")"); first = false) {
    if (!first) OPWIRE_RETURN_IF_ERROR(Expect(","));
    OPWIRE_RETURN_IF_ERROR(Expect("@"));
    const size_t offset = Peek().offset;
    OPWIRE_ASSIGN_OR_RETURN(const std::string_view callee, TakeName("a function's name"));
    calls_.push_back({module_.functions.size(), scope_.f.nodes.size(), callee, offset});
  }
  return absl::OkStatus();
}

StatusOr<std::vector<NamedAttr>> Parser::ParseAttrs(const OpDef& row) {
  std::vector<NamedAttr> attrs;
  if (!TakeIf("{")) return attrs;
  const size_t offset = Peek().offset;
  while (!TakeIf("}")) {
    if (!attrs.empty()) OPWIRE_RETURN_IF_ERROR(Expect(","));
    const size_t at = Peek().offset;
    OPWIRE_ASSIGN_OR_RETURN(const std::string_view name, TakeName("an attribute's name"));
    OPWIRE_RETURN_IF_ERROR(Expect("="));
    const int index = row.FindAttr(name);
    if (index < 0) {
      const NamedAttr unknown{std::string(name), AttrValue(int64_t{0})};
      return ErrorAt(at, CanonicalAttrs(row, std::span(&unknown, 1), module_.dims)
                             .status());  // which says what there is
    }
    if (std::any_of(attrs.begin(), attrs.end(),
                    [&](const NamedAttr& a) { return a.name == name; })) {
      return ErrorAt(at, InvalidArgument("{}: attribute {} is given twice", row.name, name));
    }
    OPWIRE_ASSIGN_OR_RETURN(AttrValue value, ParseAttrValue(row.attrs[index].kind));
    attrs.push_back({std::string(name), std::move(value)});
  }
  StatusOr<std::vector<NamedAttr>> canonical = CanonicalAttrs(row, attrs, module_.dims);
  if (!canonical.ok()) return ErrorAt(offset, canonical.status());
  return canonical;
}

Status Parser::Append(const OpDef& row, Node node, size_t offset, const std::vector<Token>& names) {
  std::vector<const TensorType*> types;
  types.reserve(node.operands.size());
  for (ValueId v : node.operands) types.push_back(v == kAbsent ? nullptr : &scope_.types[v]);
  const StatusOr<std::vector<AttrValue>> attrs = ResolveAttrs(row, node.attrs, module_.dims);
  if (!attrs.ok()) return ErrorAt(offset, attrs.status());
  StatusOr<Inferred> inferred =
      InferTypes(row, module_.dims, types, node.segments, *attrs, node.results);
  if (!inferred.ok()) return ErrorAt(offset, inferred.status());
  if (names.size() != inferred->results.size()) {
    return ErrorAt(offset, InvalidArgument("{}: expected {} results, got {} names", row.name,
                                           inferred->results.size(), names.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    OPWIRE_RETURN_IF_ERROR(Define(names[i], static_cast<ValueId>(scope_.types.size())));
    scope_.types.push_back(inferred->results[i]);
  }
  node.results = std::move(inferred->results);
  scope_.f.nodes.push_back(std::move(node));
  return absl::OkStatus();
}

Status Parser::ParseReturn() {
  OPWIRE_RETURN_IF_ERROR(Expect("return"));
  for (size_t i = 0; i < scope_.f.results.size(); ++i) {
    if (i > 0) OPWIRE_RETURN_IF_ERROR(Expect(","));
    Result& r = scope_.f.results[i];
    OPWIRE_ASSIGN_OR_RETURN(r.value, ParseValue());
    const auto& [declared, offset] = scope_.declared[i];
    const TensorType& type = scope_.types[r.value];
    if (IsValid(declared.dtype) && declared != type) {
      return ErrorAt(
          offset,
          InvalidArgument("result {}: expected {} as the program makes it, got {}", Clip(r.name),
                          ToString(type, module_.dims), ToString(declared, module_.dims)));
    }
  }
  return absl::OkStatus();
}

// blob 0 = "00ff" "7f"
Status Parser::ParseBlob() {
  OPWIRE_RETURN_IF_ERROR(Expect("blob"));
  const size_t offset = Peek().offset;
  OPWIRE_ASSIGN_OR_RETURN(const int64_t index, ParseInt());
  if (index != static_cast<int64_t>(module_.blobs.size())) {
    return ErrorAt(offset,
                   InvalidArgument("expected blob {}, got {}", module_.blobs.size(), index));
  }
  OPWIRE_RETURN_IF_ERROR(Expect("="));
  std::string bytes;
  do {
    const size_t at = Peek().offset;
    OPWIRE_ASSIGN_OR_RETURN(const std::string digits, ParseString());
    if (!HexToBytes(digits, &bytes))
      return ErrorAt(at, InvalidArgument("expected pairs of hexadecimal digits"));
  } while (Peek().kind == TokenKind::kString);
  module_.blobs.push_back(std::move(bytes));
  return absl::OkStatus();
}

}  // namespace text
}  // namespace opwire

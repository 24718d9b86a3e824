// Reads signatures into rows; costs and rules that families share; DeepX's names.
#include <cstdio>
#include <cstdlib>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

[[noreturn]] void Fail(const Spec& spec, std::string_view why) {
  std::fprintf(stderr, "catalogue row %.*s: %.*s in \"%.*s\"\n", static_cast<int>(spec.name.size()),
               spec.name.data(), static_cast<int>(why.size()), why.data(),
               static_cast<int>(spec.signature.size()), spec.signature.data());
  std::abort();
}

struct Letter {
  char name;
  DTypeSet types;
};
constexpr Letter kLetters[] = {
    {'A', kArithmetic},
    {'F', kFloats},
    {'G', kFloats},
    {'S', kFloats | kSigned},
    {'N', kIntegers},
    {'B', kIntegers | kBoolean},
    {'C', kArithmetic | kBoolean},
    {'I', kIndex},
    {'T', kAll},
    {'U', kAll},
    {'M', kFloats | kBoolean},
    {'W', {DType::kF64, DType::kF32}},
    {'Q', {DType::kI8, DType::kU8}},
    {'D', kFloat8s},
    {'E', kFloat8s},
};

std::string_view Trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> Split(std::string_view s) {
  std::vector<std::string_view> parts;
  if (Trim(s).empty()) return parts;
  for (size_t comma; (comma = s.find(',')) != s.npos; s.remove_prefix(comma + 1))
    parts.push_back(Trim(s.substr(0, comma)));
  parts.push_back(Trim(s));
  return parts;
}

// Adds the variable that `type` names, when it is one and new.
void NoteType(const Spec& spec, std::string_view type, OpDef* row) {
  if (ParseDType(type) || type == kAnyType || type == kBlocksType) return;
  if (row->Variable(type) != nullptr) return;
  for (const Letter& l : kLetters) {
    if (type == std::string_view(&l.name, 1)) {
      row->variables.push_back({std::string(type), l.types});
      return;
    }
  }
  Fail(spec, "unknown type");
}

}  // namespace

OpDef Make(const Spec& spec) {
  OpDef row{.name = std::string(spec.name),
            .attrs = spec.attrs,
            .infer = spec.infer,
            .body = spec.body,
            .effects = spec.effects,
            .aliasing = spec.aliasing,
            .cost = spec.cost,
            .control = spec.control,
            .calls = spec.calls,
            .family = std::string(spec.family),
            .doc = std::string(spec.doc)};
  const size_t arrow = spec.signature.find("->");
  if (arrow == spec.signature.npos) Fail(spec, "no ->");
  for (std::string_view part : Split(spec.signature.substr(0, arrow))) {
    const size_t colon = part.find(':');
    if (colon == part.npos) Fail(spec, "operand without a type");
    std::string_view name = Trim(part.substr(0, colon));
    OperandSpec operand;
    if (name.ends_with("...")) {
      operand.variadic = true;
      name.remove_suffix(3);
    } else if (name.ends_with("?")) {
      operand.optional = true;
      name.remove_suffix(1);
    }
    operand.name = name;
    operand.type = Trim(part.substr(colon + 1));
    NoteType(spec, operand.type, &row);
    row.operands.push_back(std::move(operand));
  }
  for (std::string_view part : Split(spec.signature.substr(arrow + 2))) {
    const size_t colon = part.find(':');
    if (colon == part.npos) Fail(spec, "result without a type");
    std::string_view name = Trim(part.substr(0, colon));
    const bool variadic = name.ends_with("...");
    if (variadic) name.remove_suffix(3);
    row.results.push_back({std::string(name), std::string(Trim(part.substr(colon + 1))), variadic});
    NoteType(spec, row.results.back().type, &row);
  }
  for (const auto& [operand, domain] : spec.domains) {
    const int i = row.FindOperand(operand);
    if (i < 0) Fail(spec, "a domain for an operand that is not");
    row.operands[i].domain = domain;
  }
  return row;
}

AttrSpec Required(std::string_view name, AttrKind kind, std::string_view doc) {
  return {std::string(name), kind, std::nullopt, std::string(doc)};
}

AttrSpec Optional(std::string_view name, AttrValue fallback, std::string_view doc) {
  const AttrKind kind = KindOf(fallback);
  return {std::string(name), kind, std::move(fallback), std::string(doc)};
}

double Elements(std::span<const int64_t> shape) {
  double n = 1;
  for (int64_t d : shape) n *= static_cast<double>(d);
  return n;
}

double TrafficBytes(const CostArgs& args) {
  double elements = 0;
  for (const Shape& s : args.operands) elements += Elements(s);
  for (const Shape& s : args.results) elements += Elements(s);
  return elements * static_cast<double>(args.element_bytes);
}

CostRule PerResult(double flops) {
  return [flops](const CostArgs& a) {
    return OpCost{flops * Elements(a.results[0]), TrafficBytes(a)};
  };
}

CostRule PerOperand(double flops) {
  return [flops](const CostArgs& a) {
    return OpCost{flops * Elements(a.operands[0]), TrafficBytes(a)};
  };
}

OpCost MoveCost(const CostArgs& a) {
  return {0, 2 * Elements(a.results[0]) * static_cast<double>(a.element_bytes)};
}

OpCost UpdateCost(const CostArgs& a) {
  return {0, 2 * Elements(a.operands[1]) * static_cast<double>(a.element_bytes)};
}

Status SameAsFirst(InferContext& c) {
  c.Result(0).shape = c.In(0).shape;
  return absl::OkStatus();
}

Status RequireKey(InferContext& c, int operand) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(operand, 1));
  return c.RequireEqual(c.In(operand).shape[0], c.dims().Constant(2), "key's extent and 2");
}

std::vector<OpAlias> Aliases() {
  return {
      {"addscalar", "add"},
      {"subscalar", "sub"},
      {"rsubscalar", "sub", /*swap=*/true},
      {"mulscalar", "mul"},
      {"divscalar", "div"},
      {"rdivscalar", "div", /*swap=*/true},
      {"powscalar", "pow"},
      {"rpowscalar", "pow", /*swap=*/true},
      {"max", "maximum"},
      {"maxscalar", "maximum"},
      {"min", "minimum"},
      {"minscalar", "minimum"},
      {"equal", "eq"},
      {"equalscalar", "eq"},
      {"notequal", "ne"},
      {"notequalscalar", "ne"},
      {"less", "lt"},
      {"lessscalar", "lt"},
      {"greater", "gt"},
      {"greaterscalar", "gt"},
      {"invert", "bitwise_not"},
      {"todtype", "cast"},
      {"switch", "choose"},
      {"concat", "cat"},
      {"broadcastTo", "expand"},
      {"indexselect", "index_select"},
      {"transpose", "permute"},
      {"reducemax", "amax"},
      {"reducemin", "amin"},
      {"newtensor", "zeros"},
      {"copytensor", "copy"},
      {"fill", "full"},
      {"argset", "full"},
      {"vecset", "values"},
  };
}

}  // namespace opwire::definitions

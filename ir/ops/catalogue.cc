// The table of all ops and the look-ups in it.
#include "ir/ops/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "ir/ops/definitions.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

void Check(bool holds, const std::string& op, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "catalogue row %s: %.*s\n", op.c_str(), static_cast<int>(what.size()),
               what.data());
  std::abort();
}

void CheckRow(const OpDef& row) {
  const auto check = [&](bool holds, std::string_view what) { Check(holds, row.name, what); };
  check(IsIdentifier(row.name), "a name of letters, digits, _ and .");
  check(row.version > 0, "a version");
  check(row.infer != nullptr, "a shape rule");
  check(row.cost != nullptr, "a cost");
  check(!row.family.empty(), "a family");
  check(!row.doc.empty() && row.doc.find('\n') == row.doc.npos, "one line of documentation");
  std::set<std::string> names;
  for (const OperandSpec& o : row.operands)
    check(IsIdentifier(o.name) && names.insert(o.name).second, "operands named once each");
  for (const AttrSpec& a : row.attrs) {
    check(IsIdentifier(a.name) && names.insert(a.name).second,
          "attributes named once each, not as operands");
    check(!a.fallback || KindOf(*a.fallback) == a.kind, "defaults of the attribute's kind");
    check(!a.doc.empty(), "documented attributes");
  }
  for (const OperandSpec& o : row.operands)
    check(!row.TypesOf(o.type).Empty(), "operands of known types");
  check(row.calls.empty() || row.control != Control::kNone, "called functions for control");
  for (const ResultSpec& r : row.results) {
    check(!row.TypesOf(r.type).Empty(), "results of known types");
    check(!r.variadic || row.HasLists(), "a list among the operands for a list of results");
    check(!r.variadic || row.body.Empty(), "one result of a body");
  }
  size_t depth = 0;
  for (const ExprNode& n : row.body.nodes()) {
    const size_t arity = InfoOf(n.prim).arity;
    check(n.prim != Prim::kIn || (n.index >= 0 && n.index < static_cast<int>(row.operands.size())),
          "a body over its operands");
    check(n.prim != Prim::kAttr || (n.index >= 0 && n.index < static_cast<int>(row.attrs.size())),
          "a body over its attributes");
    check(depth >= arity, "a body in postfix order");
    depth = depth - arity + 1;
  }
  check(row.body.Empty() ? depth == 0 : depth == 1, "a body of one value");
}

}  // namespace

std::string_view EffectsName(Effects e) {
  switch (e) {
    case Effects::kPure:
      return "pure";
    case Effects::kOrdered:
      return "ordered";
    case Effects::kCollective:
      return "collective";
    case Effects::kEmit:
      return "emit";
  }
  return "invalid";
}

int OpDef::FindOperand(std::string_view operand) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].name == operand) return static_cast<int>(i);
  }
  return -1;
}

int OpDef::FindAttr(std::string_view attr) const {
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].name == attr) return static_cast<int>(i);
  }
  return -1;
}

bool OpDef::HasLists() const {
  return std::any_of(operands.begin(), operands.end(),
                     [](const OperandSpec& o) { return o.variadic; });
}

int OpDef::LengthOf(int result) const {
  if (const int same = FindOperand(results[result].name); same >= 0 && operands[same].variadic)
    return same;
  const auto first = std::find_if(operands.begin(), operands.end(),
                                  [](const OperandSpec& o) { return o.variadic; });
  return static_cast<int>(first - operands.begin());
}

std::vector<uint32_t> OpDef::OperandStarts(std::span<const uint32_t> segments) const {
  std::vector<uint32_t> starts(operands.size() + 1, 0);
  for (size_t i = 0; i < operands.size(); ++i)
    starts[i + 1] = starts[i] + (segments.empty() ? 1 : segments[i]);
  return starts;
}

std::vector<uint32_t> OpDef::ResultStarts(std::span<const uint32_t> starts) const {
  std::vector<uint32_t> out(results.size() + 1, 0);
  for (size_t i = 0; i < results.size(); ++i) {
    uint32_t count = 1;
    if (results[i].variadic) {
      const int list = LengthOf(static_cast<int>(i));
      count = starts[list + 1] - starts[list];
    }
    out[i + 1] = out[i] + count;
  }
  return out;
}

const DTypeSet* OpDef::Variable(std::string_view variable) const {
  for (const TypeVariable& v : variables) {
    if (v.name == variable) return &v.types;
  }
  return nullptr;
}

DTypeSet OpDef::TypesOf(std::string_view type) const {
  if (type == kAnyType) return kAll;
  if (type == kBlocksType) return {DType::kI8};
  if (const DTypeSet* set = Variable(type)) return *set;
  if (const auto dtype = ParseDType(type)) return {*dtype};
  return {};
}

std::string OpDef::Signature() const {
  std::string out = name + "(";
  for (const OperandSpec& o : operands) {
    if (&o != &operands.front()) out += ", ";
    out += o.name + (o.variadic ? "..." : o.optional ? "?" : "") + ": " + o.type;
  }
  out += ") -> ";
  if (results.size() != 1) out += "(";
  for (const ResultSpec& r : results) {
    if (&r != &results.front()) out += ", ";
    out += r.name + (r.variadic ? "..." : "") + ": " + r.type;
  }
  if (results.size() != 1) out += ")";
  return out;
}

OpCatalogue::OpCatalogue(std::vector<OpDef> rows, std::vector<OpAlias> aliases)
    : rows_(std::move(rows)), aliases_(std::move(aliases)) {
  std::sort(rows_.begin(), rows_.end(),
            [](const OpDef& a, const OpDef& b) { return a.name < b.name; });
  std::sort(aliases_.begin(), aliases_.end(),
            [](const OpAlias& a, const OpAlias& b) { return a.alias < b.alias; });
  for (size_t i = 0; i < rows_.size(); ++i) {
    CheckRow(rows_[i]);
    Check(i == 0 || rows_[i - 1].name != rows_[i].name, rows_[i].name, "one row a name");
  }
  for (size_t i = 0; i < aliases_.size(); ++i) {
    const OpAlias& a = aliases_[i];
    const OpDef* row = Find(a.name);
    Check(row != nullptr, a.alias, "an alias of a row that exists");
    Check(Find(a.alias) == nullptr && (i == 0 || aliases_[i - 1].alias != a.alias), a.alias,
          "an alias of one meaning");
    Check(!a.swap || row->operands.size() == 2, a.alias, "a swap of two operands");
  }
}

const OpDef* OpCatalogue::Find(std::string_view name) const {
  const auto it = std::lower_bound(rows_.begin(), rows_.end(), name,
                                   [](const OpDef& r, std::string_view n) { return r.name < n; });
  return it != rows_.end() && it->name == name ? &*it : nullptr;
}

const OpAlias* OpCatalogue::FindAlias(std::string_view name) const {
  const auto it =
      std::lower_bound(aliases_.begin(), aliases_.end(), name,
                       [](const OpAlias& a, std::string_view n) { return a.alias < n; });
  return it != aliases_.end() && it->alias == name ? &*it : nullptr;
}

std::vector<std::string> OpCatalogue::Nearest(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const OpDef& r : rows_) names.push_back(r.name);
  for (const OpAlias& a : aliases_) names.push_back(a.alias);
  return NearestNames(name, names);
}

const OpCatalogue& Catalogue() {
  static const OpCatalogue* const catalogue = [] {
    std::vector<OpDef> all;
    for (auto* family :
         {definitions::ElementwiseOps, definitions::ShapeOps, definitions::IndexingOps,
          definitions::CreateOps, definitions::ReduceOps, definitions::SortOps,
          definitions::NormOps, definitions::NnOps, definitions::OptimOps, definitions::QuantOps,
          definitions::BlocksOps, definitions::SamplingOps, definitions::ConvolutionOps,
          definitions::ControlOps}) {
      for (OpDef& row : family()) all.push_back(std::move(row));
    }
    return new OpCatalogue(std::move(all), definitions::Aliases());
  }();
  return *catalogue;
}

}  // namespace opwire

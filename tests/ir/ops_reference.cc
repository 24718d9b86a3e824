// Writes the op reference from the catalogue, or says that the one at hand is out of date.
//
//   ops_reference docs/ops.md            exits 1 and names the first line that differs
//   ops_reference --update docs/ops.md   rewrites it
#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ir/ops/catalogue.h"

namespace opwire {
namespace {

// The words of a paragraph in lines of at most 120 columns. A sign like + stays with the word
// before it, as a line that begins with it would be a list.
std::string Wrapped(std::string_view text) {
  constexpr size_t kColumns = 120;
  std::vector<std::string> units;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (word.size() == 1 && absl::ascii_ispunct(word[0]) && !units.empty())
      units.back() += ' ' + word;
    else
      units.push_back(std::move(word));
  }
  std::string out;
  size_t column = 0;
  for (const std::string& unit : units) {
    const bool fits = column + 1 + unit.size() <= kColumns;
    if (column > 0) out += fits ? ' ' : '\n';
    column = column > 0 && fits ? column + 1 + unit.size() : unit.size();
    out += unit;
  }
  return out;
}

// In the order in which one reads about them.
constexpr std::pair<std::string_view, std::string_view> kFamilies[] = {
    {"elementwise", "Elementwise"},
    {"shape", "Shape and indexing"},
    {"create", "Creation and randomness"},
    {"reduce", "Reductions"},
    {"sort", "Order"},
    {"softmax", "Softmax"},
    {"norm", "Normalisation"},
    {"matmul", "Matrix products"},
    {"convolution", "Convolution"},
    {"attention", "Attention"},
    {"rotary", "Rotary embedding"},
    {"loss", "Losses"},
    {"optim", "Optimisers"},
    {"quant", "Quantisation"},
    {"blocks", "Weights in blocks"},
    {"sampling", "Sampling"},
    {"control", "Control"}};

std::string Default(const AttrValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return fmt::to_string(*i);
  if (const auto* f = std::get_if<double>(&v)) return fmt::format("{}", *f);
  if (const auto* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&v)) return "\"" + *s + "\"";
  if (const auto* d = std::get_if<DType>(&v)) return std::string(DTypeName(*d));
  return "[]";  // lists; CheckLists sees that they are empty
}

bool IsEmptyList(const AttrValue& v) {
  return std::visit(
      [](const auto& x) {
        if constexpr (requires { x.empty(); }) return x.empty();
        return false;
      },
      v);
}

std::string_view DomainText(Domain d) {
  switch (d) {
    case Domain::kAny:
      return "";
    case Domain::kIndex:
      return "an index in [-n, n)";
    case Domain::kIndexOrIgnore:
      return "an index in [0, n), or ignore_index";
  }
  return "";
}

std::string RowText(const OpDef& row) {
  std::string out =
      fmt::format("### {}\n\n`{}`\n\n{}\n", row.name, row.Signature(), Wrapped(row.doc));
  std::vector<std::string> operands, attrs;
  for (const OperandSpec& o : row.operands) operands.push_back(o.name);
  for (const AttrSpec& a : row.attrs) attrs.push_back(a.name);
  if (!row.calls.empty())
    out += fmt::format("\n[Calls](text-form.md#calls): {}.\n", fmt::join(row.calls, ", "));
  if (!row.body.Empty()) out += fmt::format("\nBody: `{}`\n", row.body.ToString(operands, attrs));
  for (const OperandSpec& o : row.operands) {
    if (o.domain != Domain::kAny)
      out += fmt::format("\nValues of `{}`: {}; elsewhere 0 is read and the run is OUT_OF_RANGE.\n",
                         o.name, DomainText(o.domain));
  }
  if (row.attrs.empty()) return out;
  out += "\n| attribute | kind | default | |\n|---|---|---|---|\n";
  for (const AttrSpec& a : row.attrs) {
    const std::string fallback = a.fallback ? "`" + Default(*a.fallback) + "`" : "required";
    out += fmt::format("| `{}` | {} | {} | {} |\n", a.name, AttrKindName(a.kind), fallback, a.doc);
  }
  return out;
}

std::string Reference() {
  std::string out =
      "# Ops\n\n" +
      Wrapped(
          "Written by `ops_reference --update docs/ops.md` from the catalogue (`ir/ops`). A test "
          "compares the two. In signatures `?` marks an operand that may be absent and `...` a "
          "list. `any` is whatever type the value has, `blocks` i8 encoded in GGUF's blocks. All "
          "ops here are version 1 and, except emit, pure.") +
      "\n\n| letter | element types |\n|---|---|\n";
  std::map<std::string, std::string> letters;
  for (const OpDef& row : Catalogue().rows()) {
    for (const TypeVariable& v : row.variables)
      letters[v.name] = v.types == kAll ? "all" : v.types.ToString();
  }
  for (const auto& [name, types] : letters) out += fmt::format("| {} | {} |\n", name, types);
  for (const auto& [family, title] : kFamilies) {
    out += fmt::format("\n## {}\n", title);
    for (const OpDef& row : Catalogue().rows()) {
      if (row.family == family) out += "\n" + RowText(row);
    }
  }
  out +=
      "\n## Aliases\n\nThese names parse to an op; those marked *swapped* take its two operands "
      "in reverse order.\n\n| alias | "
      "op | |\n|---|---|---|\n";
  for (const OpAlias& a : Catalogue().aliases())
    out += fmt::format("| `{}` | `{}` | {} |\n", a.alias, a.name, a.swap ? "swapped" : "");
  return out;
}

// What the text above takes for granted; false and a message otherwise.
bool CheckAssumptions() {
  for (const OpDef& row : Catalogue().rows()) {
    bool known = false;
    for (const auto& [family, title] : kFamilies) known |= row.family == family;
    if (!known)
      return fmt::print(stderr, "{}: family {} has no title here\n", row.name, row.family), false;
    if (row.version != 1 ||
        row.effects != (row.control == Control::kEmit ? Effects::kEmit : Effects::kPure))
      return fmt::print(stderr, "{}: say its version or effects here\n", row.name), false;
    for (const AttrSpec& a : row.attrs) {
      if (a.fallback && a.fallback->index() > static_cast<size_t>(AttrKind::kDType) &&
          !IsEmptyList(*a.fallback)) {
        return fmt::print(stderr, "{}: attribute {} has a default that is not printed here\n",
                          row.name, a.name),
               false;
      }
    }
  }
  return true;
}

int Run(bool update, const char* path) {
  if (!CheckAssumptions()) return 1;
  const std::string want = Reference();
  if (update) {
    std::ofstream out(path, std::ios::binary);
    out << want;
    out.close();
    if (!out) return fmt::print(stderr, "{}: cannot be written\n", path), 1;
    return 0;
  }
  std::ifstream in(path, std::ios::binary);
  std::stringstream have;
  have << in.rdbuf();
  if (!in) return fmt::print(stderr, "{}: cannot be read\n", path), 1;
  std::istringstream a(want), b(have.str());
  std::string line_a, line_b;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a)),
               more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) break;
    if (more_a != more_b || line_a != line_b) {
      fmt::print(stderr,
                 "{}:{}: out of date; expected \"{}\", got \"{}\"; run ops_reference --update {}\n",
                 path, line, more_a ? line_a : "the end", more_b ? line_b : "the end", path);
      return 1;
    }
  }
  return want == have.str() ? 0 : 1;
}

}  // namespace
}  // namespace opwire

int main(int argc, char** argv) {
  const bool update = argc == 3 && std::string_view(argv[1]) == "--update";
  if (argc != 2 && !update) {
    fmt::print(stderr, "usage: ops_reference [--update] FILE\n");
    return 2;
  }
  return opwire::Run(update, argv[argc - 1]);
}

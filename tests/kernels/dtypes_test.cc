// docs/dtypes.md says what the catalogue and the variants say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "ir/ops/catalogue.h"
#include "kernels/device/device.h"
#include "kernels/select/variant.h"

namespace opwire {
namespace {

// "P" where a production variant takes the type, "r" where only the reference does, "" where the
// row does not.
std::string Cells(const VariantTable& table, const OpDef& row) {
  const DTypeSet types =
      row.variables.empty() ? row.TypesOf(row.operands[0].type) : row.variables[0].types;
  std::string cells;
  for (int t = 1; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    bool fast = false;
    for (const Variant& v : table.Of(row.name))
      fast |= v.tier == Tier::kProduction && v.dtypes.Has(type);
    cells += fmt::format(" {} |", !types.Has(type) ? " " : fast ? "P" : "r");
  }
  return cells;
}

// The table's lines: ops of one family with equal cells share one.
std::string Table() {
  const VariantTable variants = BuildVariantTable(**OpenDevice("cpu", {}));
  std::map<std::pair<std::string, std::string>, std::string> classes;
  for (const OpDef& row : Catalogue().rows()) {
    if (row.control != Control::kNone) continue;
    std::string& ops = classes[{row.family, Cells(variants, row)}];
    ops += (ops.empty() ? "" : ", ") + row.name;
  }
  std::string table = "| ops |", rule = "|---|";
  for (int t = 1; t < kDTypeCount; ++t) {
    table += fmt::format(" {} |", DTypeName(static_cast<DType>(t)));
    rule += "---|";
  }
  table += "\n" + rule + "\n";
  for (const auto& [key, ops] : classes)
    table += fmt::format("| *{}*: {} |{}\n", key.first, ops, key.second);
  return table;
}

TEST(Dtypes, DocumentMatchesCatalogueAndVariants) {
  std::ifstream file(OPWIRE_DOCS "/dtypes.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(Table()), std::string::npos) << "docs/dtypes.md should hold\n"
                                                         << Table();
}

}  // namespace
}  // namespace opwire

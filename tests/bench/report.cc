// Rows as a table and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/bench/bench.h"

namespace opwire::bench {

void Write(const std::vector<Row>& rows, const std::string& out, const Facts& facts) {
  if (out.empty()) return;
  nlohmann::json list = nlohmann::json::array();
  for (const Row& r : rows) {
    nlohmann::json row = {{"name", r.name},
                          {"value", r.value},
                          {"unit", r.unit},
                          {"baseline", r.baseline},
                          {"baseline_name", r.baseline_name},
                          {"ratio", RatioOf(r)},
                          {"target", r.target},
                          {"target_is_ratio", r.target_is_ratio},
                          {"met", r.target > 0 ? nlohmann::json(Met(r)) : nullptr},
                          {"spread", std::isfinite(r.spread) ? r.spread : 0.0},
                          {"checked", r.checked},
                          {"digest", r.digest},
                          {"note", r.note},
                          {"failure", r.failure}};
    for (const auto& [name, value] : facts)
      std::visit([&, &name = name](const auto& v) { row[name] = v; }, value);
    list.push_back(std::move(row));
  }
  std::ofstream(out) << list.dump(2) << "\n";
}

void CheckDigests(const std::string& program, const std::string& file, std::vector<Row>& rows) {
  constexpr double kError = 1e-3;
  std::ifstream in(file);
  const nlohmann::json all = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json recorded =
      all.is_object() && all.contains(program) ? all[program] : nlohmann::json::object();
  for (Row& r : rows) {
    if (Failed(r) || r.digest == 0) continue;
    // Rows against PyTorch have the results of the rows that they belong to.
    const std::string_view name = r.name;
    const double want = recorded.value(
        std::string(name.ends_with("_torch") ? name.substr(0, name.size() - 6) : name), 0.0);
    if (std::fabs(r.digest - want) <= kError * want) continue;
    r.failure =
        fmt::format("results: expected digest {:.6g}, got {:.6g} ({})", want, r.digest, file);
  }
}

int Report(std::vector<Row> rows, const std::string& out, const Facts& facts, bool small) {
  for (Row& r : rows) r.target = small ? 0 : r.target;
  int missed = 0, targets = 0, skipped = 0;
  std::vector<std::string> failed, unchecked;
  size_t width = 24;
  for (const Row& r : rows) width = std::max(width, r.name.size() + 1);
  fmt::print("\n{:<{}}{:>14} {:<12}{:>14}{:>9}{:>10}{:>8}{:>9}\n", "name", width, "ours", "unit",
             "baseline", "ratio", "target", "met", "spread");
  for (const Row& r : rows) {
    if (Failed(r)) {
      failed.push_back(r.name);
      fmt::print("{:<{}}{:>14} failed: {}\n", r.name, width, "-", r.failure);
      continue;
    }
    if (Skipped(r)) {
      ++skipped;
      fmt::print("{:<{}}{:>14} {}\n", r.name, width, "-", r.note);
      continue;
    }
    if (!r.checked) unchecked.push_back(r.name);
    const bool has_target = r.target > 0, met = Met(r);
    targets += has_target;
    missed += has_target && !met;
    fmt::print("{:<{}}{:>14.4g} {:<12}{:>14}{:>9}{:>10}{:>8}{:>8.0f}%{}{}\n", r.name, width,
               r.value, r.unit, r.baseline > 0 ? fmt::format("{:.4g}", r.baseline) : "-",
               r.baseline > 0 ? fmt::format("{:.3f}", RatioOf(r)) : "-",
               has_target ? fmt::format("{}{:g}{}", r.higher_is_better ? ">=" : "<=", r.target,
                                        r.target_is_ratio ? "x" : "")
                          : "-",
               has_target ? (met ? "yes" : "MISSED") : "-",
               std::isfinite(r.spread) ? 100 * r.spread : 0.0, r.note.empty() ? "" : "  ", r.note);
  }
  Write(rows, out, facts);
  fmt::print("\n");
  if (!small) fmt::print("{} of {} targets missed\n", missed, targets);
  if (small && !unchecked.empty())
    fmt::print("only measured, with no result to compare: {}\n", fmt::join(unchecked, ", "));
  if (skipped > 0)
    fmt::print("{} rows not measured, with the reason in place of figures\n", skipped);
  if (rows.empty()) fmt::print("no row has such a name\n");
  fmt::print("{} passed, {} failed\n", rows.size() - failed.size() - static_cast<size_t>(skipped),
             failed.size());
  if (!failed.empty()) fmt::print("{} rows failed: {}\n", failed.size(), fmt::join(failed, ", "));
  return rows.empty() || !failed.empty() ? 1 : 0;
}

}  // namespace opwire::bench

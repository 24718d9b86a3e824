// Two runs, element by element.
#include "tests/passes/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/element.h"

namespace opwire {

OutcomeTest::OutcomeTest() {
  VariantTable references;
  for (const Variant& v : variants_.variants()) {
    if (v.tier == Tier::kReference) references.Add(v);
  }
  variants_ = std::move(references);
}

std::string OutcomeTest::Difference(const Module& before, const Module& after, uint64_t seed,
                                    double tolerance, const FillParam& fill, int* compared) {
  const auto run = [&](const Module& m) {
    Restart();
    executor::Client c = Hello();
    return Outcome(c, m, seed, fill);
  };
  const std::vector<std::string> a = run(before), b = run(after);
  if (a[0] != "OK") return "";
  if (compared != nullptr) ++*compared;
  if (b[0] != "OK") return fmt::format("after: {}", b[0]);
  // As Outcome gives them: what is inout, then the other results.
  const Function& f = after.functions[0];
  const ValueTypes values(f);
  std::vector<std::pair<std::string, DType>> shown;
  for (const Param& p : f.params) {
    if (p.mode == ParamMode::kInout) shown.emplace_back(p.name, p.type.dtype);
  }
  const size_t inouts = shown.size();
  for (const Result& r : f.results) {
    const auto inout = std::find_if(shown.begin(), shown.begin() + static_cast<ptrdiff_t>(inouts),
                                    [&](const auto& s) { return s.first == r.name; });
    if (inout == shown.begin() + static_cast<ptrdiff_t>(inouts))
      shown.emplace_back(r.name, values.types[static_cast<size_t>(r.value)]->dtype);
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto& [name, dtype] = shown[i];
    const std::string &x = a[i + 1], &y = b[i + 1];
    if (x.size() != y.size())
      return fmt::format("{}: {} bytes, and after: {}", name, x.size(), y.size());
    const auto size = static_cast<size_t>(DTypeBytes(dtype));
    for (size_t at = 0; at < x.size(); at += size) {
      if (x.compare(at, size, y, at, size) == 0) continue;
      const double u = ElementValue(dtype, x.data() + at), v = ElementValue(dtype, y.data() + at);
      if (std::isnan(u) && std::isnan(v)) continue;
      if (std::abs(u - v) <= tolerance * std::max({1.0, std::abs(u), std::abs(v)})) continue;
      return fmt::format("{}[{}]: {} ({}), and after: {}", name, at / size,
                         ElementText(dtype, x.data() + at), DTypeName(dtype),
                         ElementText(dtype, y.data() + at));
    }
  }
  return "";
}

}  // namespace opwire

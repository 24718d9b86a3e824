// Every row of the catalogue, with every variant that this machine has, for every element type, against the oracle on fresh random
// operands. OPWIRE_SEED fixes the seed, which is printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tests/conformance/exclusions.h"
#include "tests/conformance/harness.h"

namespace opwire::conformance {
namespace {

uint64_t Seed() {
  static const uint64_t seed = [] {
    const char* const given = std::getenv("OPWIRE_SEED");
    const uint64_t s = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
    fmt::print("OPWIRE_SEED={}\n", s);
    return s;
  }();
  return seed;
}

Device& Cpu() {
  static Device* const device = OpenDevice("cpu", {})->release();
  return *device;
}
const VariantTable& Table() {
  static const auto* const table = new VariantTable(BuildVariantTable(Cpu()));
  return *table;
}

bool Matches(const Expected& e, int64_t i, Real got) {
  const Real want = e.result.values[i];
  const DType t = e.result.dtype;
  if (std::isnan(want)) return std::isnan(got) || (t == DType::kF8E4M3 && std::isnan(Rounded(t, want)));
  if (e.exact_zeros && want == 0 && got == 0 && IsFloat(t)) return std::signbit(want) == std::signbit(got);
  if (e.error.empty()) {
    const Real rounded = Rounded(t, want);
    return got == rounded || (std::isnan(got) && std::isnan(rounded));
  }
  if (std::isinf(got) && !std::isinf(want))
    return std::fabs(want) + e.error[i] >= Largest(t) && std::signbit(got) == std::signbit(want);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= e.error[i] || got == Rounded(t, want);
}

// Empty: as expected.
std::string Compare(const Expected& e, const Outcome& out) {
  if (!out.failure.empty()) return out.failure;
  for (int64_t i = 0; i < e.result.elements(); ++i) {
    if (Matches(e, i, out.result.values[i])) continue;
    return fmt::format("element {}: expected {} within {}, got {}", i, static_cast<double>(e.result.values[i]),
                       e.error.empty() ? 0.0 : static_cast<double>(e.error[i]), static_cast<double>(out.result.values[i]));
  }
  if (((out.flags.raised & OPW_FLAG_DIVIDE) != 0) != e.divided) return "the divide flag is wrong";
  if (out.flags.out_of_range_operand != e.bad_operand) {
    return fmt::format("out of range: expected operand {}, got {}", e.bad_operand, out.flags.out_of_range_operand);
  }
  if (e.bad_operand >= 0 && out.flags.out_of_range_position != e.bad_position) {
    return fmt::format("out of range: expected position {}, got {}", e.bad_position, out.flags.out_of_range_position);
  }
  return "";
}

bool CanBeInPlace(const BoundCase& b) {
  return !b.c->operands.empty() && b.c->operands[0].dtype == b.result_type && b.c->operands[0].shape == b.result_shape;
}

class Conformance : public testing::TestWithParam<std::string> {};

TEST_P(Conformance, EveryVariantAndType) {
  const OpRow& row = *Catalogue().Find(GetParam());
  Random random(Seed() ^ std::hash<std::string>()(row.name));
  ASSERT_FALSE(Table().Of(row.name).empty()) << "no variant";
  const DTypeSet types = row.variables.empty() ? row.TypesOf(row.operands[0].type) : row.variables[0].types;
  std::map<std::string, int> ran;
  int failures = 0;
  for (int t = 1; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    if (!types.Has(type)) continue;
    for (const Case& c : CasesOf(row, type, random)) {
      const StatusOr<BoundCase> b = Bind(row, c);
      ASSERT_TRUE(b.ok()) << row.name << c.name << ": " << b.status();
      const Expected expected = ExpectedOf(*b);
      for (const Variant& v : Table().Of(row.name)) {
        if (!v.unavailable.empty() || !v.dtypes.Has(type) || !ExclusionOf(row.name, v.name).empty()) continue;
        for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
          if (layout != Layout::kDense && (v.kernel.flags & OPW_CONTIGUOUS) != 0) continue;
          for (const bool in_place : {false, true}) {
            if (in_place && ((v.kernel.flags & OPW_INPLACE) == 0 || !CanBeInPlace(*b) || layout != Layout::kDense)) continue;
            const Outcome out = RunCase(v, *b, layout, in_place, Cpu());
            if (!out.skipped.empty()) continue;
            ++ran[v.name];
            const std::string wrong = Compare(expected, out);
            if (wrong.empty()) continue;
            ADD_FAILURE() << row.name << "@" << v.name << c.name << " layout " << static_cast<int>(layout)
                          << (in_place ? " in place" : "") << ": " << wrong;
            if (++failures > 10) return;
          }
        }
      }
    }
  }
  for (const Variant& v : Table().Of(row.name)) {
    EXPECT_TRUE(!v.unavailable.empty() || ran[v.name] > 0) << v.name << " ran no case";
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const OpRow& row : Catalogue().rows()) names.push_back(row.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rows, Conformance, testing::ValuesIn(Names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace opwire::conformance

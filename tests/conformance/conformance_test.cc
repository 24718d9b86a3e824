// Tests every op definition, with every variant that the devices have, for every element type,
// against the oracle on fresh random operands. OPWIRE_SEED fixes the seed, which is printed.
// OPWIRE_DEVICES, OPWIRE_TYPES, OPWIRE_VARIANTS and OPWIRE_SIZES limit the checks (harness.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <span>
#include <string_view>

#include "kernels/jit/worker.h"
#include "tests/conformance/exclusions.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/prepare.h"
#include "tests/seed.h"

namespace opwire::conformance {
namespace {

bool Matches(const Expected::Result& e, bool exact_zeros, int64_t i, Real got) {
  const Real want = e.tensor.values[i];
  const DType t = e.tensor.dtype;
  if (std::isnan(want))
    return std::isnan(got) || (t == DType::kF8E4M3 && std::isnan(Rounded(t, want)));
  if (exact_zeros && want == 0 && got == 0 && IsFloat(t))
    return std::signbit(want) == std::signbit(got);
  if (e.error.empty()) {
    const Real rounded = Rounded(t, want);
    return got == rounded || (std::isnan(got) && std::isnan(rounded));
  }
  if (std::isinf(got) && !std::isinf(want))
    return std::fabs(want) + e.error[i] >= Largest(t) && std::signbit(got) == std::signbit(want);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= e.error[i] || got == Rounded(t, want);
}

// Returns the difference; empty if the outcome is as expected.
std::string Compare(const Expected& e, const Outcome& out) {
  if (!out.failure.empty()) return out.failure;
  for (size_t r = 0; r < e.results.size(); ++r) {
    const Expected::Result& want = e.results[r];
    for (int64_t i = 0; i < want.tensor.elements(); ++i) {
      if (Matches(want, e.exact_zeros, i, out.results[r].values[i])) continue;
      return fmt::format("result {}, element {}: expected {} within {}, got {}", r, i,
                         static_cast<double>(want.tensor.values[i]),
                         want.error.empty() ? 0.0 : static_cast<double>(want.error[i]),
                         static_cast<double>(out.results[r].values[i]));
    }
  }
  if (((out.flags.raised & OPW_FLAG_DIVIDE) != 0) != e.divided) return "the divide flag is wrong";
  if (out.flags.out_of_range_operand != e.bad_operand) {
    return fmt::format("out of range: expected operand {}, got {}", e.bad_operand,
                       out.flags.out_of_range_operand);
  }
  if (e.bad_operand >= 0 && out.flags.out_of_range_step != kStep)
    return fmt::format("out of range: expected step {}, got {}", kStep,
                       out.flags.out_of_range_step);
  if (e.bad_operand >= 0 && out.flags.out_of_range_position != e.bad_position) {
    return fmt::format("out of range: expected position {}, got {}", e.bad_position,
                       out.flags.out_of_range_position);
  }
  return "";
}

bool CanBeInPlace(const BoundCase& b) {
  return !b.c->operands.empty() && b.c->operands[0].dtype == b.results[0].dtype &&
         b.c->operands[0].shape == b.results[0].shape;
}

struct Checked {
  const Target* target;
  const OpDef* row;
};

void PrintTo(const Checked& c, std::ostream* out) {
  *out << c.row->name << " on " << c.target->spec;
}

// Counts of the checks of the process, printed at its end.
class Tally : public testing::Environment {
 public:
  int64_t served = 0;    // an op definition and an element type that some variant of it ran
  int64_t excluded = 0;  // an op definition, an element type and a variant that exclusions.cc
                         // leaves out
  int64_t calls = 0, failed = 0;

  void TearDown() override {
    fmt::print(
        "cases of a row and an element type: {} in {} calls, of which {} failed; {} excluded\n",
        served, calls, failed, excluded);
  }
};
Tally& tally = *static_cast<Tally*>(testing::AddGlobalTestEnvironment(new Tally));

class Conformance : public testing::TestWithParam<Checked> {};

TEST_P(Conformance, EveryVariantAndType) {
  const Target& target = *GetParam().target;
  const OpDef& row = *GetParam().row;
  OPWIRE_TRACE_SEED();
  Random random(Seed() ^ std::hash<std::string>()(row.name));
  const std::span<const Variant> variants = target.variants.Of(row.name);
  ASSERT_FALSE(variants.empty()) << "no variant of " << row.name << " on " << target.spec;
  const DTypeSet types =
      row.variables.empty() ? row.TypesOf(row.operands[0].type) : row.variables[0].types;
  std::string reasons;
  for (const Variant& v : variants) {
    if (IsChecked(v.name) && !v.unavailable.empty())
      reasons += fmt::format("; {}: {}", v.name, v.unavailable);
  }
  const bool none = std::ranges::none_of(
      variants, [](const Variant& v) { return v.unavailable.empty() && IsChecked(v.name); });
  if (none) GTEST_SKIP() << "no variant of OPWIRE_VARIANTS serves it" << reasons;
  std::map<std::string, int> ran;
  std::map<std::string, std::string> skipped;  // the last reason
  DTypeSet checked;
  int failures = 0;
  for (int t = 1; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    if (!types.Has(type) || !TypesToCheck().Has(type)) continue;
    checked = checked | DTypeSet({type});
    const int64_t calls = tally.calls;
    for (const Variant& v : variants)
      tally.excluded += v.dtypes.Has(type) && !ExclusionOf(row.name, v.name).empty();
    std::vector<Case> cases = CasesOf(row, type, random);
    if (!OnlySmall() && target.device->info().kind == "cuda")
      std::ranges::move(LongCasesOf(row, type, random), std::back_inserter(cases));
    if (target.device->info().kind == "emu") std::erase_if(cases, &Case::large);
    const auto runs = [&](const Variant& v) {
      return v.unavailable.empty() && v.dtypes.Has(type) && IsChecked(v.name) &&
             ExclusionOf(row.name, v.name).empty();
    };
    PrepareKernels(target, row, cases, runs);
    for (const Case& c : cases) {
      const StatusOr<BoundCase> b = Bind(row, c);
      ASSERT_TRUE(b.ok()) << row.name << c.name << ": " << b.status();
      const Expected expected = ExpectedOf(*b, *target.device);
      for (const Variant& v : variants) {
        if (!runs(v)) continue;
        for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
          if (layout != Layout::kDense && (v.kernel.flags & OPW_CONTIGUOUS) != 0) continue;
          for (const bool in_place : {false, true}) {
            if (in_place && ((v.kernel.flags & OPW_INPLACE) == 0 || !CanBeInPlace(*b) ||
                             layout != Layout::kDense))
              continue;
            const Outcome out = RunCase(v, *b, layout, in_place, *target.device);
            if (!out.skipped.empty()) {
              skipped[v.name] = out.skipped;
              continue;
            }
            ++ran[v.name];
            ++tally.calls;
            const std::string wrong = Compare(expected, out);
            if (wrong.empty()) continue;
            ++tally.failed;
            ADD_FAILURE() << row.name << "@" << v.name << c.name << " layout "
                          << static_cast<int>(layout) << (in_place ? " in place" : "") << ": "
                          << wrong;
            if (++failures > 10) return;
          }
        }
      }
    }
    tally.served += tally.calls > calls;
  }
  for (const Variant& v : variants) {
    const bool serves = !OnlySmall() && v.unavailable.empty() && IsChecked(v.name) &&
                        v.dtypes - checked != v.dtypes;
    EXPECT_TRUE(!serves || ran[v.name] > 0) << v.name << " ran no case: " << skipped[v.name];
  }
}

std::vector<Checked> All() {
  std::vector<Checked> all;
  for (const auto& target : Targets()) {
    for (const OpDef& row : Catalogue().rows()) {
      if (row.control == Control::kNone) all.push_back({target.get(), &row});
    }
  }
  return all;
}
// "matmul" on the cpu, "emu_0_matmul" on emu:0.
std::string TestName(const testing::TestParamInfo<Checked>& info) {
  std::string name = info.param.target->spec == "cpu" ? "" : info.param.target->spec + "_";
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '-'; }, '_');
  return name + info.param.row->name;
}
INSTANTIATE_TEST_SUITE_P(Rows, Conformance, testing::ValuesIn(All()), TestName);

}  // namespace
}  // namespace opwire::conformance

// With --jit-worker it is the process that compiles for GPUs.
int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--jit-worker")
    return opwire::jit::WorkerMain(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

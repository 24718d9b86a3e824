// Random programs mean the same after the passes: equal to the bit if only exact rules may apply.
// OPWIRE_PROGRAMS is the number of programs. A program that fails is made smaller and saved as
// text.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <random>

#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/ir/random_program.h"
#include "tests/passes/outcome.h"
#include "tests/passes/programs.h"
#include "tests/seed.h"

namespace opwire {
namespace {

// Half of the programs consist of these ops, so that their patterns occur.
const std::vector<std::string> kRewritten = {
    "add",   "sub",    "mul",      "div",         "pow",         "neg",         "abs",    "copy",
    "relu",  "sign",   "maximum",  "minimum",     "where",       "eq",          "lt",     "exp",
    "floor", "cast",   "reshape",  "permute",     "expand",      "cat",         "matmul", "full",
    "zeros", "values", "constant", "bitwise_and", "bitwise_not", "bitwise_xor", "clamp"};

class RandomPrograms : public OutcomeTest {
 protected:
  // Returns the error; empty if there is none.
  std::string Wrong(const Module& before, uint64_t seed) {
    Module after = before;
    const auto report = RunPasses(after, {.accuracy = Accuracy::kExact});
    if (!report.ok()) return report.status().ToString();
    changed_ += std::ranges::any_of(report->runs, [](const PassReport& r) {
      return r.changes > 0 && r.pass != "canonicalise" && r.pass != "dead";
    });
    return Difference(before, after, seed, 0, nullptr, &compared_);
  }

  // Returns the program without results and nodes that are not needed for the error.
  Module Shrink(Module m, uint64_t seed) {
    for (bool smaller = true; smaller;) {
      smaller = false;
      for (size_t r = 0; r < m.functions[0].results.size() && !smaller; ++r) {
        Module less = m;
        less.functions[0].results.erase(less.functions[0].results.begin() +
                                        static_cast<ptrdiff_t>(r));
        if (!RunPasses(less, OnlyPasses({"dead"})).ok() || Wrong(less, seed).empty()) continue;
        m = std::move(less);
        smaller = true;
      }
    }
    return m;
  }

  int changed_ = 0;   // by more than order and dead nodes
  int compared_ = 0;  // programs that ran to their end
};

TEST_F(RandomPrograms, MeanTheSameAfterThePasses) {
  OPWIRE_TRACE_SEED();
  const auto programs = static_cast<int>(ProgramCount(400));
  std::mt19937_64 random(Seed());
  for (int i = 0; i < programs; ++i) {
    const uint64_t seed = random();
    std::mt19937_64 rng(seed);
    RandomOptions options{.nodes = static_cast<int>(2 + rng() % (i % 20 == 0 ? 198 : 30)),
                          .decorations = false,
                          .control = true};
    if (i % 2 == 1) options.ops = kRewritten;
    const Module m = RandomModule(rng, options);
    const std::string wrong = Wrong(m, seed);
    if (wrong.empty()) continue;
    const Module small = Shrink(m, seed);
    const std::string path = ::testing::TempDir() + "opwire-random-program.opw";
    std::ofstream(path) << Print(small);
    FAIL() << wrong << "\nprogram " << i << ", saved as " << path << ":\n" << Print(small);
  }
  std::cout << programs << " programs, " << changed_ << " changed, " << compared_ << " compared\n";
  EXPECT_GT(changed_, programs / 2);
  EXPECT_GT(compared_, programs / 2);
}

}  // namespace
}  // namespace opwire

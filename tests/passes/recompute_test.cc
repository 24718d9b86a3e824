// Rematerialised values: equal results, to the bit, with less memory.
#include "ir/passes/recompute.h"

#include <algorithm>
#include <iostream>
#include <random>

#include "ir/passes/gradient.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/ir/random_program.h"
#include "tests/passes/outcome.h"
#include "tests/seed.h"

namespace opwire {
namespace {

// Layers of a product and two functions; the results of the second are marked if `marked`.
std::string Deep(int layers, bool marked) {
  std::string text =
      "program @deep(%x: f32[6, 8], %w: f32[8, 8], %t: f32[6, 8]) -> (loss: f32[]) {\n";
  std::string last = "x";
  for (int i = 0; i < layers; ++i) {
    text += fmt::format("  %a{0} = matmul(%{1}, %w)\n  %g{0} = gelu(%a{0})\n", i, last);
    if (marked) text += fmt::format("  %m{0} = recompute(%g{0})\n", i);
    text += fmt::format("  %s{0} = sin(%{1}{0})\n", i, marked ? "m" : "g");
    last = fmt::format("s{}", i);
  }
  return text +
         fmt::format(
             "  %d = sub(%{}, %t)\n  %e = mul(%d, %d)\n  %loss = mean(%e)\n  return %loss\n}}\n",
             last);
}

class RecomputeTest : public OutcomeTest {
 protected:
  static Module Trained(int layers, bool marked = false) {
    const std::vector<std::string> wrt = {"w", "x"};
    Module m = Gradient(Parse(Deep(layers, marked), "deep.opw").value(), wrt).value();
    return m;
  }
  static int64_t PeakOf(Module m) {
    const Typing typing = VerifyModule(m).value();
    return CostOf(m, typing, {}).value().peak_bytes;
  }
  static int64_t Count(const Module& m, std::string_view op) {
    return std::ranges::count(m.functions[0].nodes, op, &Node::op);
  }
};

TEST_F(RecomputeTest, TakesWhatItMay) {
  OPWIRE_TRACE_SEED();
  Module before = Trained(12);
  ASSERT_OK(RunPasses(before).status());
  const int64_t peak = PeakOf(before);
  int64_t nodes = 0;
  for (const int percent : {100, 80, 60, 45}) {
    SCOPED_TRACE(percent);
    Module after = before;
    ASSERT_OK_AND(const RecomputeReport report,
                  Recompute(after, {.memory_bytes = peak * percent / 100}));
    EXPECT_EQ(report.before_bytes, peak);
    EXPECT_EQ(report.after_bytes, PeakOf(after));
    EXPECT_LE(report.after_bytes, peak * percent / 100);
    EXPECT_GE(report.nodes, nodes) << "less memory, more work";
    nodes = report.nodes;
    EXPECT_EQ(Difference(before, after, Seed()), "");
    // The passes do not undo it.
    ASSERT_OK(RunPasses(after, {.accuracy = Accuracy::kExact}).status());
    EXPECT_LE(PeakOf(after), report.after_bytes);
    EXPECT_EQ(Difference(before, after, Seed()), "");
  }
  EXPECT_GT(nodes, 10);
}

TEST_F(RecomputeTest, SaysWhatItCouldReach) {
  Module m = Trained(6);
  const Module before = m;
  const Status status = Recompute(m, {.memory_bytes = 100}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(MessageOf(status).starts_with(
      "recompute: expected at most 100 bytes between nodes, the least found is "))
      << status;
  EXPECT_TRUE(Equal(m, before));
}

TEST_F(RecomputeTest, LoopsBodiesFitToo) {
  OPWIRE_TRACE_SEED();
  std::string step = Deep(10, false);
  step.replace(
      step.find("program @deep(%x: f32[6, 8], %w: f32[8, 8], %t: f32[6, 8])"),
      std::string_view("program @deep(%x: f32[6, 8], %w: f32[8, 8], %t: f32[6, 8])").size(),
      "function @step(%iteration: i64[], %x: f32[6, 8], %w: f32[8, 8], %t: f32[6, 8])");
  step.replace(step.find("(loss: f32[])"), 13, "(x: f32[6, 8])");
  step.replace(step.find("return %loss"), 12, "%y = mul(%d, %loss)\n return %y");
  Module m = Parse(
                 "program @p(%n: i64[], %x: f32[6, 8], %w: f32[8, 8], %t: f32[6, 8]) -> (loss: "
                 "f32[]) {\n %five = full() {value = 2.0, dtype = i64}\n"
                 " %y = repeat(%five, [%x], [%w, %t]) calls(@step)\n %loss = mean(%y)\n return "
                 "%loss\n}\n" +
                     step,
                 "loop.opw")
                 .value();
  const std::vector<std::string> wrt = {"w"};
  ASSERT_OK_AND(Module trained, Gradient(m, wrt));
  ASSERT_OK(RunPasses(trained).status());
  Module less = trained;
  ASSERT_OK_AND(const RecomputeReport report,
                Recompute(less, {.memory_bytes = PeakOf(trained) * 6 / 10}));
  EXPECT_GT(report.nodes, 0);
  EXPECT_EQ(Difference(trained, less, Seed()), "");
}

TEST_F(RecomputeTest, BodiesWithoutNodesTakeNothing) {
  Module m = Parse(R"(program @f(%x: f32[64], %n: i64[]) -> (y: f32[64]) {
                        %0 = sin(%x)
                        %1 = repeat(%n, [%0], []) calls(@same)
                        %2 = cos(%1)
                        %3 = mul(%2, %0)
                        return %3 }
                      function @same(%iteration: i64[], %x: f32[64]) -> (x: f32[64]) { return %x })",
                   "t.opw")
                 .value();
  EXPECT_EQ(Recompute(m, {.memory_bytes = 300}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// In the backward pass, only the nodes that compute a marked value again read it, and no marks are
// left.
TEST_F(RecomputeTest, MarksAreComputedAgain) {
  OPWIRE_TRACE_SEED();
  const Module plain = Trained(4), marked = Trained(4, true);
  EXPECT_EQ(Count(plain, "gelu"), 4);
  EXPECT_EQ(Count(marked, "gelu"), 8);
  EXPECT_EQ(Count(marked, "matmul"), Count(plain, "matmul"));
  EXPECT_EQ(Count(marked, "recompute"), 4) << "what the gelus read";
  EXPECT_LT(PeakOf(marked), PeakOf(plain));
  EXPECT_EQ(Difference(plain, marked, Seed()), "");
  Module passed = marked;
  ASSERT_OK(RunPasses(passed, {.accuracy = Accuracy::kExact}).status());
  EXPECT_EQ(Count(passed, "gelu"), 8);
  EXPECT_EQ(Difference(plain, passed, Seed()), "");
  // A chain of marks goes back to its first one.
  const std::vector<std::string> wrt = {"x"};
  ASSERT_OK_AND(
      const Module chain,
      Gradient(Parse("program @c(%x: f32[4]) -> (y: f32[]) { %a = exp(%x) %b = recompute(%a) %c = "
                     "sin(%b) %d = recompute(%c) %e = tanh(%d) %y = sum(%e) return %y }",
                     "c.opw")
                   .value(),
               wrt));
  EXPECT_EQ(Count(chain, "exp"), 2) << Print(chain);
  EXPECT_EQ(Count(chain, "recompute"), 1) << Print(chain);
}

// In chains of views of any length.
TEST_F(RecomputeTest, ViewsOfWhatIsMarkedAreMadeAgain) {
  std::string text = "program @v(%x: f32[4, 6]) -> (y: f32[]) { %a = exp(%x) %v0 = recompute(%a)\n";
  constexpr int kViews = 40'000;
  for (int i = 1; i <= kViews; ++i)
    text +=
        fmt::format("%v{} = reshape(%v{}) {{shape = {}}}\n", i, i - 1, i % 2 ? "[24]" : "[4, 6]");
  text += fmt::format("%e = tanh(%v{0}) %f = mul(%e, %v{0}) %y = sum(%f) return %y }}", kViews);
  const std::vector<std::string> wrt = {"x"};
  ASSERT_OK_AND(const Module m,
                Gradient(Parse(text, "v.opw").value(), wrt,
                         {.limits = {.nodes = 1 << 20, .attribute_bytes = 1 << 24}}));
  EXPECT_EQ(Count(m, "exp"), 2);
}

// Many values, each at the end of the same long chain of nodes that are not kept.
TEST_F(RecomputeTest, ManyValuesOfOneLongWay) {
  constexpr int kNodes = 8000;
  std::string text = "program @f(%x: f32[4]) -> (y: f32[4]) { %c0 = exp(%x)\n";
  for (int i = 1; i < kNodes; ++i)
    text += fmt::format("%c{} = {}(%c{})\n", i, i % 2 ? "gelu" : "sin", i - 1);
  for (int i = 0; i < kNodes; ++i)
    text +=
        fmt::format("%f{0} = full() {{value = {0}.5}} %k{0} = add(%c{1}, %f{0})\n", i, kNodes - 1);
  text += fmt::format("%a0 = neg(%k{})\n", kNodes - 1);
  for (int i = 1; i < kNodes; ++i) text += fmt::format("%a{0} = mul(%a{1}, %k{1})\n", i, i - 1);
  Module m = Parse(text + fmt::format("return %a{} }}", kNodes - 1), "f.opw").value();
  const int64_t before = PeakOf(m);
  ASSERT_OK_AND(const RecomputeReport report, Recompute(m, {.memory_bytes = before * 9 / 10}));
  EXPECT_LE(report.after_bytes, before * 9 / 10);
}

// An inout parameter is read again only before its own node.
TEST_F(RecomputeTest, InoutsKeepTheirOrder) {
  OPWIRE_TRACE_SEED();
  const Module before =
      Parse(R"(program @f(inout %w: f32[8], %x: f32[8]) -> (w: f32[8], y: f32[8], z: f32[8]) {
    %a = mul(%w, %x)
    %b = exp(%x)
    %s = sum(%b)
    %c = add(%b, %s)
    %d = sin(%c)
    %e = mul(%d, %c)
    %new = add(%w, %e)
    %y = mul(%a, %b)
    return %new, %y, %c
  })",
            "t.opw")
          .value();
  for (int64_t most = PeakOf(before); most > 0; most -= 4) {
    Module after = before;
    if (!Recompute(after, {.memory_bytes = most}).ok()) continue;
    EXPECT_EQ(Difference(before, after, Seed()), "") << Print(after);
  }
}

TEST_F(RecomputeTest, RandomProgramsMeanTheSame) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  const auto programs = static_cast<int>(ProgramCount(300));
  int changed = 0, compared = 0;
  for (int i = 0; i < programs; ++i) {
    const uint64_t seed = random();
    std::mt19937_64 rng(seed);
    RandomOptions options{
        .nodes = static_cast<int>(10 + rng() % 60), .decorations = false, .control = i % 2 == 0};
    if (i % 4 != 0)
      options.ops = {"add",    "sub", "mul",     "neg",          "exp",     "sin",    "maximum",
                     "where",  "lt",  "cast",    "reshape",      "permute", "expand", "cat",
                     "matmul", "sum", "softmax", "add_rms_norm", "full"};
    const Module before = RandomModule(rng, options);
    const auto peak_of = [](Module m) -> StatusOr<int64_t> {
      OPWIRE_ASSIGN_OR_RETURN(const Typing typing, VerifyModule(m));
      OPWIRE_ASSIGN_OR_RETURN(const ProgramCost cost, CostOf(m, typing, {}));
      return cost.peak_bytes;
    };
    ASSERT_OK_AND(const int64_t peak, peak_of(before));
    for (const int percent : {95, 80, 60}) {
      Module after = before;
      const auto report = Recompute(after, {.memory_bytes = peak * percent / 100});
      if (!report.ok()) {
        ASSERT_TRUE(absl::IsResourceExhausted(report.status()) ||
                    absl::IsUnimplemented(report.status()))
            << report.status() << "\n"
            << Print(before);
        continue;
      }
      changed += report->nodes > 0;
      const std::string difference = Difference(before, after, seed, 0, nullptr, &compared);
      ASSERT_EQ(difference, "") << "program " << i << "\n" << Print(before) << Print(after);
    }
  }
  std::cout << changed << " changed, " << compared << " compared\n";
  EXPECT_GT(changed, programs / 6);
}

}  // namespace
}  // namespace opwire

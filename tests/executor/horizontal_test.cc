// Equal small groups that run as one step: which groups, that none is delayed or kept in memory
// longer, and that the results are those of separate groups.
#include "executor/plan/horizontal.h"

#include <fmt/format.h>

#include <algorithm>

#include "executor/plan/instance.h"
#include "executor/plan/program.h"
#include "ir/text/text.h"
#include "tests/executor/fixture.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

using StepNames = std::vector<std::string>;

StepNames JointSteps(const std::string& text, std::vector<int64_t> symbols = {}) {
  return WithoutVariants(StepsOf(text, std::move(symbols), /*fuses=*/true));
}

// Returns a program with `count` weights of different shapes. The nodes of `update` update each of
// them; {0} is its number and {1} its type.
std::string EachWeight(int count, const std::string& update, const std::string& result = "%n{0}",
                       const std::string& more = "") {
  std::string params, results, nodes, values;
  for (int i = 0; i < count; ++i) {
    const std::string type = i % 3 == 0   ? fmt::format("f32[{}]", i + 1)
                             : i % 3 == 1 ? fmt::format("f32[{}, 3]", i)
                                          : "f32[2, 2, 5]";
    params += fmt::format("inout %w{0}: {1}, %g{0}: {1}, ", i, type);
    results += fmt::format("{}w{}: {}", i ? ", " : "", i, type);
    nodes += fmt::format(fmt::runtime(update), i, type);
    values += (i ? ", " : "") + fmt::format(fmt::runtime(result), i);
  }
  return fmt::format("program @f({}%lr: f32[]) -> ({}) {{\n{}{}  return {}\n}}\n", params, results,
                     more, nodes, values);
}
constexpr const char* kSgd = "  %s{0} = mul(%g{0}, %lr)\n  %n{0} = sub(%w{0}, %s{0})\n";

TEST(Horizontal, AWrittenOptimiserIsOneStep) {
  EXPECT_EQ(JointSteps(EachWeight(50, kSgd)), StepNames{"fused x50(mul, sub)"});
  // With a number instead of a parameter; the number may differ.
  EXPECT_EQ(JointSteps(EachWeight(50,
                                  "  %r{0} = full() {{value = 0.{0}}}\n  %s{0} = mul(%g{0}, "
                                  "%r{0})\n  %n{0} = sub(%w{0}, %s{0})\n")),
            StepNames{"fused x50(mul, sub)"});
}

TEST(Horizontal, NodesByThemselvesJoin) {
  std::string params, results, nodes, values;
  for (int i = 0; i < 20; ++i) {
    params += fmt::format("{}%x{}: f32[{}]", i ? ", " : "", i, i + 2);
    results += fmt::format("{}y{}: bf16[{}]", i ? ", " : "", i, i + 2);
    nodes += fmt::format("  %{} = cast(%x{}) {{dtype = bf16}}\n", i, i);
    values += fmt::format("{}%{}", i ? ", " : "", i);
  }
  EXPECT_EQ(JointSteps(fmt::format("program @f({}) -> ({}) {{\n{}  return {}\n}}\n", params,
                                   results, nodes, values)),
            StepNames{"fused x20(cast)"});
}

TEST(Horizontal, ManyAreSeveralSteps) {
  EXPECT_EQ(JointSteps(EachWeight(300, kSgd)),
            (StepNames{"fused x256(mul, sub)", "fused x44(mul, sub)"}));
}

TEST(Horizontal, PinsLargeOnesAndOtherOpsStay) {
  EXPECT_EQ(JointSteps(EachWeight(
                2, "  %s{0} = mul@reference(%g{0}, %lr)\n  %n{0} = sub@reference(%w{0}, %s{0})\n")),
            (StepNames{"mul", "sub", "mul", "sub"}));
  const auto two = [](const char* first, const char* second, const char* op) {
    return fmt::format(
        "program @f(%x: f32[{0}], %y: f32[{1}]) -> (a: f32[{0}], b: f32[{1}]) {{\n  %0 = neg(%x)\n "
        " %1 = {2}(%y)\n  return %0, %1\n}}\n",
        first, second, op);
  };
  EXPECT_EQ(JointSteps(two("8", "1048576", "neg")), StepNames{"fused x2(neg)"});
  EXPECT_EQ(JointSteps(two("8", "1048577", "neg")), (StepNames{"neg", "neg"}));
  EXPECT_EQ(JointSteps(two("8", "16", "abs")), (StepNames{"neg", "abs"}));
  EXPECT_EQ(JointSteps(two("8", "?n", "neg"), {3}), StepNames{"fused x2(neg)"})
      << "sizes that are bound later";
}

TEST(Horizontal, NoneWaitsForAnother) {
  EXPECT_EQ(JointSteps(R"(
program @f(inout %a: f32[4], inout %b: f32[5], %g: f32[4], %h: f32[5], %i: f32[4, 4]) -> (a: f32[4], b: f32[5], m: f32[4, 4]) {
  %0 = neg(%g)
  %1 = neg(%h)
  %2 = mul(%i, %0)
  return %0, %1, %2
})"),
            (StepNames{"neg", "neg", "mul"}))
      << "another reads the result of the first";
  // The second group reads the old value that the first one replaces.
  const std::string reads = R"(
program @f(inout %a: f32[1], inout %b: f32[5], inout %c: f32[7], %h: f32[5], %k: f32[]) -> (a: f32[1], b: f32[5], c: f32[7]) {
  %0 = mul(%h, %a)
  %1 = mul(%a, %k)
  %2 = mul(%c, %k)
  return %1, %0, %2
})";
  EXPECT_EQ(JointSteps(reads), (StepNames{"fused x2(mul)", "mul"}));
}

int64_t BytesOfScratch(const std::string& text, bool joins, int64_t* bound = nullptr) {
  const std::unique_ptr<Device> device = OpenDevice("cpu", {}).value();
  struct Apart final : fused::Fuser {
    std::shared_ptr<fused::Fuser> of;
    std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram& p) override {
      return of->Get(p);
    }
    std::shared_ptr<const opw_kernel> GetRows(const fused::RowProgram& p) override {
      return of->GetRows(p);
    }
    bool HasRows() const override { return of->HasRows(); }
    bool Settled() const override { return of->Settled(); }
  };
  auto apart = std::make_shared<Apart>();
  apart->of = BuildFuser(*device);
  const auto set = std::make_shared<KernelSet>(
      KernelSet{.fuser = joins ? apart->of : apart, .variants = BuildVariantTable(*device)});
  const auto program =
      PrepareProgram(Serialise(Parse(text, "t").value()), set, ExecutorLimits()).value();
  const auto instance = Instance::Build(*program, 0, {}, {.runtime = device->runtime()}).value();
  if (bound) *bound = instance->scratch_bound();
  return instance->scratch_bytes();
}

TEST(Horizontal, NothingIsKeptInMemoryLonger) {
  // Each gradient ends with its weight's update, before the program computes the next one.
  const std::string text = R"(
program @f(inout %a: f32[64, 64], inout %b: f32[64, 64], inout %c: f32[64, 64], %x: f32[64, 64], %lr: f32[]) -> (a: f32[64, 64], b: f32[64, 64], c: f32[64, 64]) {
  %g = matmul(%x, %x)
  %0 = mul(%g, %lr)
  %1 = sub(%a, %0)
  %h = matmul(%x, %b)
  %2 = mul(%h, %lr)
  %3 = sub(%b, %2)
  %i = matmul(%x, %c)
  %4 = mul(%i, %lr)
  %5 = sub(%c, %4)
  return %1, %3, %5
})";
  EXPECT_EQ(JointSteps(text).size(), 6u);
  // If all of them exist before, it is one step, and takes no more memory.
  const std::string together = R"(
program @f(inout %a: f32[64, 64], inout %b: f32[64, 64], %x: f32[64, 64], %lr: f32[]) -> (a: f32[64, 64], b: f32[64, 64]) {
  %g = matmul(%x, %x)
  %h = matmul(%x, %b)
  %0 = mul(%g, %lr)
  %1 = sub(%a, %0)
  %2 = mul(%h, %lr)
  %3 = sub(%b, %2)
  return %1, %3
})";
  EXPECT_EQ(JointSteps(together), (StepNames{"matmul", "matmul", "fused x2(mul, sub)"}));
  EXPECT_EQ(BytesOfScratch(together, true), BytesOfScratch(together, false));
}

class HorizontalTest : public CoreTest {
 protected:
  void Start(bool fuses) {
    if (fuses && !built_) built_ = BuildFuser(*device_, {.worker = OPWIRE_EXECUTOR});
    fuser_ = fuses ? built_ : nullptr;
    Restart();
    c_ = Hello();
  }
  std::shared_ptr<fused::Fuser> built_;
  Client c_;
};

// Updates that may read other weights, old and new, and other updates' results. Other nodes among
// them read the results.
std::string RandomUpdates(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const char* const types[] = {"f32[5]", "f32[3, 4]", "f32[1]"};
  const size_t weights = 3 + below(12);
  std::string params, results, nodes, replacing, values;
  std::vector<std::vector<std::string>> read(3);
  std::vector<std::string> old(weights), by(weights);
  std::vector<size_t> order(weights);
  for (size_t t = 0; t < 3; ++t) {
    params += fmt::format("%g{}: {}, ", t, types[t]);
    read[t].push_back(fmt::format("%g{}", t));
  }
  for (size_t w = 0; w < weights; ++w) {
    params += fmt::format("inout %w{}: {}, ", w, types[w % 3]);
    results += fmt::format("{}w{}: {}", w ? ", " : "", w, types[w % 3]);
    old[w] = fmt::format("%w{}", w);
    order[w] = w;
  }
  std::ranges::shuffle(order, random);
  std::string extra;
  int value = 0;
  for (const size_t w : order) {
    const size_t t = w % 3, other = below(weights);
    const std::string& gradient = below(5) == 0 && other % 3 == t && !old[other].empty()
                                      ? old[other]
                                      : read[t][below(4) == 0 ? below(read[t].size()) : 0];
    if (below(4) == 0) {
      nodes += fmt::format("  %{} = neg({})\n", value, gradient);
    } else {
      nodes += fmt::format("  %{} = mul({}, %lr)\n  %{} = sub(%w{}, %{})\n", value, gradient,
                           value + 1, w, value);
      ++value;
    }
    by[w] = fmt::format("%{}", value++);
    old[w].clear();
    read[t].push_back(by[w]);
    const size_t what = below(5);
    if (what == 0) nodes += fmt::format("  %{} = sum({})\n", value, read[t][below(read[t].size())]);
    if (what == 1) nodes += fmt::format("  %{} = abs({})\n", value, read[t][below(read[t].size())]);
    if (what > 1) continue;
    extra += fmt::format(", e{}: {}", w, what == 0 ? "f32[]" : types[t]);
    values += fmt::format(", %{}", value++);
  }
  for (size_t w = 0; w < weights; ++w) replacing += (w ? ", " : "") + by[w];
  return fmt::format("program @f({}%lr: f32[]) -> ({}{}) {{\n{}  return {}{}\n}}\n", params,
                     results, extra, nodes, replacing, values);
}

TEST_F(HorizontalTest, RandomUpdatesGiveEqualResults) {
  const uint64_t programs = ProgramCount(device_->info().host_memory ? 200 : 10);
  uint64_t joint = 0;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::string text = RandomUpdates(random);
    const auto m = Parse(text, "t");
    ASSERT_TRUE(m.ok()) << m.status() << text;
    Start(false);
    const std::vector<std::string> alone = Outcome(c_, *m, seed);
    ASSERT_EQ(alone[0], "OK") << text;
    Start(true);
    ASSERT_EQ(Outcome(c_, *m, seed), alone) << text;
    const auto set = std::make_shared<KernelSet>(KernelSet{.fuser = built_, .variants = variants_});
    const std::shared_ptr<Program> program =
        PrepareProgram(Serialise(*m), set, ExecutorLimits()).value();
    joint += std::ranges::any_of(program->plans[0].schedule.groups,
                                 [](const FusedGroup& g) { return g.members > 1; });
    if (device_->info().host_memory) {
      ASSERT_LE(BytesOfScratch(text, true), BytesOfScratch(text, false) + 64 * 16) << text;
    }
  }
  EXPECT_GT(joint, built_->HasJoint() ? programs / 2 : -1);
}

}  // namespace
}  // namespace opwire::executor

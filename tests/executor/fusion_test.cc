// Elementwise nodes that run as one kernel: which nodes, in which order, and that the results are
// those of nodes run alone.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "executor/plan/instance.h"
#include "executor/plan/program.h"
#include "ir/text/text.h"
#include "kernels/fused/fuser.h"
#include "tests/executor/fixture.h"
#include "tests/ir/random_program.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;
using Labels = std::vector<std::string>;

Labels Fused(const std::string& text, std::vector<int64_t> symbols = {}) {
  return WithoutVariants(StepsOf(text, std::move(symbols), /*fuses=*/true));
}

// ---- Groups
// -------------------------------------------------------------------------------------------------

TEST(Schedule, AChainIsOneKernel) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[?n, 8], %b: f32[8]) -> (y: f32[?n, 8]) {
  %0 = full() {value = 0.5}
  %1 = mul(%x, %0)
  %2 = add(%1, %b)
  %3 = relu(%2)
  return %3
})",
                  {3}),
            Labels{"fused(mul, add, relu)"});
}

TEST(Schedule, WhatOthersReadAlsoLeavesTheKernel) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 8], %w: f32[8, 8]) -> (y: f32[4, 8], z: f32[4, 8], s: f32[]) {
  %0 = add(%x, %x)
  %1 = exp(%0)
  %2 = sum(%0)
  %3 = neg(%1)
  %4 = matmul(%1, %w)
  return %3, %4, %2
})"),
            (Labels{"fused(add, exp, neg)", "sum", "matmul"}));
}

TEST(Schedule, NoPathLeavesAGroupAndEntersItAgain) {
  EXPECT_EQ(Fused(R"(
program @softmax(%x: f32[4, 8]) -> (y: f32[4, 8]) {
  %m = amax(%x) {dims = [0], keepdim = true}
  %0 = sub(%x, %m)
  %1 = exp(%0)
  %s = sum(%1) {dims = [0], keepdim = true}
  %2 = div(%1, %s)
  %3 = mul(%2, %1)
  return %3
})"),
            (Labels{"amax", "fused(sub, exp, sum)", "fused(div, mul)"}));
}

// Several nodes compute an activation's derivative from its operand. Only that operand is kept
// until the backward pass.
TEST(Schedule, SeveralNodesMoveTogetherWhereTheyReadNoMoreThanTheyHandOn) {
  const auto program = [](std::string_view read) {
    return fmt::format(R"(
program @f(%x: f32[8, 8], %w: f32[8, 8], %v: f32[8, 8]) -> (y: f32[8, 8]) {{
  %p = matmul(%x, %w)
  %s = mul(%p, {})
  %t = tanh(%s)
  %d = mul(%t, %p)
  %q = matmul(%p, %w)
  %y = mul(%q, %d)
  return %y
}})",
                       read);
  };
  EXPECT_EQ(Fused(program("%p")), (Labels{"matmul", "matmul", "fused(mul, tanh, mul, mul)"}));
  EXPECT_EQ(Fused(program("%v")), (Labels{"matmul", "fused(mul, tanh, mul)", "matmul",
                                          "mul"}));  // would keep two for one
}

TEST(Schedule, WhatOnlyALaterGroupReadsIsComputedThere) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[8, 8], %w: f32[8, 8]) -> (y: f32[8, 8]) {
  %0 = neg(%x)
  %1 = abs(%0)
  %2 = matmul(%x, %w)
  %3 = add(%1, %2)
  return %3
})"),
            (Labels{"matmul", "fused(neg, abs, add)"}));
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[8, 8], %y: f32[8, 8], %w: f32[8, 8]) -> (y: f32[8, 8]) {
  %0 = add(%x, %y)
  %2 = matmul(%x, %w)
  %3 = add(%0, %2)
  return %3
})"),
            (Labels{"add", "matmul", "add"}))
      << "two values would be kept for one";
}

TEST(Schedule, ABroadcastIsRead) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 8], %s: f32[8]) -> (y: f32[4, 8]) {
  %0 = expand(%s) {shape = [4, 8]}
  %1 = mul(%x, %0)
  return %1
})"),
            Labels{"fused(expand, mul)"});
}

TEST(Schedule, ANumberThatOthersReadFromMemoryStays) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4]) -> (y: f32[4], z: f32[8]) {
  %0 = full() {value = 2.0, shape = [4]}
  %1 = mul(%x, %0)
  %2 = neg(%1)
  %3 = cat([%0, %x])
  return %2, %3
})"),
            (Labels{"full", "fused(mul, neg)", "cat"}));
}

TEST(Schedule, PinsAndLimitsHold) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4]) -> (y: f32[4]) {
  %0 = neg(%x)
  %1 = abs@reference(%0)
  %2 = neg(%1)
  %3 = abs(%2)
  return %3
})"),
            (Labels{"neg", "abs", "fused(neg, abs)"}));
  std::string chain = "program @f(%x: f32[4]) -> (y: f32[4]) {\n  %0 = neg(%x)\n";
  for (int i = 1; i < 200; ++i) chain += fmt::format("  %{} = neg(%{})\n", i, i - 1);
  EXPECT_EQ(Fused(chain + "  return %199\n}\n").size(), 4u) << "64 nodes, 64, 64 and 8";
  std::string sums = "program @f(";
  for (int i = 0; i < 40; ++i) sums += fmt::format("{}%x{}: f32[4]", i ? ", " : "", i);
  sums += ") -> (y: f32[4]) {\n  %0 = add(%x0, %x1)\n";
  for (int i = 1; i < 39; ++i) sums += fmt::format("  %{} = add(%{}, %x{})\n", i, i - 1, i + 1);
  const Labels parts = Fused(sums + "  return %38\n}\n");
  EXPECT_GE(parts.size(), 3u) << "16 inputs";
  EXPECT_LE(parts.size(), 5u);
}

TEST(Schedule, ReasonsSayWhyANodeIsAlone) {
  const auto alone = [](const std::string& text, uint32_t node) {
    const Schedule schedule = ScheduleOf(text);
    const std::span<const std::string> why = schedule.WhyAlone(node);
    return Labels(why.begin(), why.end());
  };
  const std::string between = R"(
program @f(%x: f32[4, 4], %y: f32[4]) -> (y: f32[4, 4], z: f32[]) {
  %0 = matmul(%x, %x)
  %1 = relu(%0)
  %2 = matmul(%1, %1)
  %3 = mul(%y, %y)
  %4 = exp@reference(%3)
  %5 = sum(%x) {dims = []}
  %6 = neg(%5)
  %7 = relu(%0)
  return %2, %6
})";
  EXPECT_EQ(alone(between, 1), (Labels{"%1 goes to matmul, which is not elementwise",
                                       "%0 comes from matmul, which is not elementwise"}));
  EXPECT_EQ(alone(between, 0), Labels{}) << "nobody expects it to be of a group";
  EXPECT_EQ(alone(between, 3), Labels{"%3 goes to exp, which has a variant of its own"});
  EXPECT_EQ(alone(between, 4), Labels{}) << "who pinned it knows";
  EXPECT_EQ(
      alone(between, 5),
      Labels{"%5 comes from sum, which reduces the last axis and others, or leaves short lines"});
  EXPECT_EQ(alone(between, 7), Labels{}) << "nobody reads it";
  EXPECT_EQ(
      alone(between, 6),
      Labels{"%5 comes from sum, which reduces the last axis and others, or leaves short lines"});
}

TEST(Schedule, AnOldValueIsReadBeforeItIsReplaced) {
  EXPECT_EQ(Fused(R"(
program @step(inout %w: f32[8], inout %m: f32[8], %g: f32[8], %b: f32[]) -> (w: f32[8], m: f32[8], n: f32[8]) {
  %0 = mul(%m, %b)
  %1 = add(%0, %g)
  %2 = cumsum(%w) {dim = 0}
  %3 = sub(%w, %1)
  return %3, %1, %2
})"),
            (Labels{"fused(mul, add)", "cumsum", "sub"}))
      << "no copies";
  EXPECT_EQ(Fused(R"(
program @step(inout %w: f32[8], %g: f32[8]) -> (w: f32[8], n: f32[]) {
  %0 = mul(%w, %w)
  %1 = sub(%w, %g)
  %2 = sum(%0)
  return %1, %2
})"),
            Labels{"fused(mul, sub, sum)"});
}

TEST(Schedule, WhatIsSentIsSentInOrder) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[8]) -> (y: f32[8]) {
  %0 = neg(%x)
  emit(%0) {name = "a"}
  %1 = abs(%0)
  emit(%x) {name = "b"}
  emit(%1) {name = "c"}
  return %0
})"),
            (Labels{"fused(neg, abs)", "control", "control", "control"}));
}

TEST(Schedule, ALoopsBodyIsFusedInPlace) {
  EXPECT_EQ(Fused(R"(
program @f(%n: i64[], inout %w: f32[8], %g: f32[8]) -> (w: f32[8]) {
  %0 = repeat(%n, [%w], [%g]) calls(@step)
  return %0
}
function @step(%iteration: i64[], inout %w: f32[8], %g: f32[8]) -> (w: f32[8]) {
  %0 = mul(%g, %g)
  %1 = sub(%w, %0)
  return %1
})"),
            (Labels{"control", "control", "fused(mul, sub)", "control"}));
}

// ---- Memory
// -------------------------------------------------------------------------------------------------

int64_t ScratchOf(const std::string& text, bool no_arena = false) {
  const std::unique_ptr<Device> device = OpenDevice("cpu", {}).value();
  const auto set = std::make_shared<KernelSet>(
      KernelSet{.fuser = BuildFuser(*device), .variants = BuildVariantTable(*device)});
  const auto program =
      PrepareProgram(Serialise(Parse(text, "t").value()), set, ExecutorLimits()).value();
  return Instance::Build(*program, 0, {}, {.runtime = device->runtime(), .no_arena = no_arena})
      .value()
      ->scratch_bytes();
}

TEST(Scratch, AnElementwiseKernelWritesOverAnOperandThatEnds) {
  constexpr int64_t kResult = 4096 * 4;  // has memory of its own, for runs that do not keep it
  const auto chain = [](const char* between) {
    return fmt::format(
        "program @f(%x: f32[4096]) -> (y: f32[4096]) {{\n  %0 = softmax(%x)\n{}  %9 = "
        "softmax(%8)\n  return %9\n}}\n",
        between);
  };
  EXPECT_EQ(ScratchOf(chain("  %1 = mul(%0, %0)\n  %8 = add(%1, %x)\n")), kResult + 4096 * 4)
      << "a group";
  EXPECT_EQ(ScratchOf(chain("  %8 = neg(%0)\n")), kResult + 4096 * 4) << "a node";
  EXPECT_EQ(ScratchOf(chain("  %8 = softmax(%0)\n")), kResult + 2 * 4096 * 4) << "not elementwise";
  EXPECT_EQ(ScratchOf(chain("  %1 = softmax(%0)\n  %8 = sub(%1, %0)\n")), kResult + 2 * 4096 * 4);
  EXPECT_EQ(ScratchOf(chain("  %1 = reshape(%0) {shape = [64, 64]}\n  %2 = neg(%1)\n  %8 = "
                            "reshape(%2) {shape = [4096]}\n")),
            kResult + 4096 * 4)
      << "a view's shape is the result's";
  EXPECT_EQ(
      ScratchOf("program @f(%x: f32[4096, 1]) -> (y: f32[4096, 4096]) {\n  %0 = softmax(%x)\n  %1 "
                "= reshape(%0) {shape = [1, 4096]}\n  %2 = add(%0, %1)\n  return %2\n}\n"),
      int64_t{4096} * 4096 * 4 + 4096 * 4)
      << "read under two shapes";
  EXPECT_EQ(ScratchOf(chain("  %8 = neg(%0)\n"), /*no_arena=*/true), 0);
}

// ---- Results
// -------------------------------------------------------------------------------------------------

class FusionTest : public CoreTest {
 protected:
  void Start(bool fuses) {
    if (fuses && !built_) built_ = BuildFuser(*device_, {.worker = OPWIRE_EXECUTOR});
    fuser_ = fuses ? built_ : nullptr;
    Restart();
    c_ = Hello();
  }
  void MustLoad(const std::string& text) {
    const Answer a = Load(c_, 1, text);
    ASSERT_TRUE(a.ok()) << a.status;
  }
  std::shared_ptr<fused::Fuser> built_;
  Client c_;
};

TEST_F(FusionTest, WeightsAreReplacedInTheirPlaces) {
  Start(true);
  MustLoad(R"(
program @cross(inout %a: f32[5], inout %b: f32[5]) -> (a: f32[5], b: f32[5]) {
  %0 = full() {value = 10.0}
  %1 = add(%a, %b)
  %2 = sub(%a, %b)
  %3 = mul(%1, %0)
  return %3, %2
})");
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4, 5}).ok());
  ASSERT_TRUE(Put(c_, 2, {1, 1, 1, 1, 1}).ok());
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).None().None());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{20, 30, 40, 50, 60}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{0, 1, 2, 3, 4}));
}

TEST_F(FusionTest, NumbersAreOfTheirTypes) {
  Start(true);
  // 0.1 of bf16 is 0.10009765625, also where the group computes in f32; 2.9 of i32 is 2.
  MustLoad(R"(
program @f(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %0 = full() {value = 0.1, dtype = bf16}
  %1 = cast(%x) {dtype = bf16}
  %2 = mul(%1, %0)
  %3 = cast(%2) {dtype = f32}
  %4 = full() {value = 2.9, dtype = i32}
  %5 = cast(%x) {dtype = i32}
  %6 = mul(%5, %4)
  %7 = cast(%6) {dtype = f32}
  return %3, %7
})");
  const Answer a = Ask(c_, RunOf(1).Array({1, 16}).Inline().Inline());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(0), (Floats{0.10009765625f, 1.6015625f}));
  EXPECT_EQ(a.Floats(1), (Floats{2, 32}));
}

TEST_F(FusionTest, NarrowFloatsAreRoundedWhereTheyAreStored) {
  const char* const text = R"(
program @f(%x: f32[1]) -> (y: f32[1]) {
  %0 = cast(%x) {dtype = bf16}
  %1 = full() {value = 0.00390625, dtype = bf16}
  %2 = add(%0, %1)
  %3 = sub(%2, %0)
  %4 = cast(%3) {dtype = f32}
  return %4
})";
  for (const bool fuses : {false, true}) {
    Start(fuses);
    MustLoad(text);
    const Answer a = Ask(c_, RunOf(1).Array({1}).Inline());
    ASSERT_TRUE(a.ok()) << a.status;
    EXPECT_EQ(a.Floats(0), Floats{fuses ? 0.00390625f : 0.0f}) << "1 + 2^-8 is 1 in bf16";
  }
}

TEST_F(FusionTest, FlagsAreRaised) {
  Start(true);
  MustLoad(R"(
program @f(%x: f32[3]) -> (y: f32[3]) {
  %0 = cast(%x) {dtype = i32}
  %1 = full() {value = 6.0, dtype = i32}
  %2 = div(%1, %0)
  %3 = cast(%2) {dtype = f32}
  return %3
})");
  const Answer whole = Ask(c_, RunOf(1).Array({1, 2, 3}).Inline());
  EXPECT_EQ(whole.Floats(0), (Floats{6, 3, 2}));
  EXPECT_EQ(whole.run().flags, 0u);
  const Answer divided = Ask(c_, RunOf(1).Array({1, 0, 3}).Inline());
  EXPECT_EQ(divided.Floats(0), (Floats{6, 0, 2}));
  EXPECT_EQ(divided.run().flags, static_cast<uint32_t>(OPW_FLAG_DIVIDE));
}

TEST_F(FusionTest, ProfilesAndPlansNameGroups) {
  Start(true);
  MustLoad(R"(
program @f(%x: f32[3]) -> (y: f32[3]) {
  %0 = neg(%x)
  %1 = exp(%0)
  return %1
})");
  RunOf run = RunOf(1).Array({1, 2, 3}).Inline();
  run.run.profile = true;
  const Answer a = Ask(c_, run);
  ASSERT_TRUE(a.ok()) << a.status;
  ASSERT_EQ(a.run().profile.size(), 1u);
  EXPECT_EQ(a.run().profile[0]->label, "fused");
  EXPECT_EQ(a.run().profile[0]->node, 1u) << "its last";
}

// Returns the result of CoreTest::Outcome, with all NaNs replaced by the same one.
std::vector<std::string> WithOneNan(const Module& m, std::vector<std::string> outcome) {
  const Function& f = m.functions[0];
  const ValueTypes values(f);
  std::vector<DType> types;
  for (const Param& p : f.params) {
    if (p.mode == ParamMode::kInout) types.push_back(p.type.dtype);
  }
  for (const Result& r : f.results) {
    const bool replaces = std::ranges::any_of(
        f.params, [&](const Param& p) { return p.mode == ParamMode::kInout && p.name == r.name; });
    if (!replaces) types.push_back(values.types[static_cast<size_t>(r.value)]->dtype);
  }
  const auto settle = [](std::string& bytes, auto nan) {
    for (size_t at = 0; at + sizeof(nan) <= bytes.size(); at += sizeof(nan)) {
      auto v = nan;
      std::memcpy(&v, bytes.data() + at, sizeof(v));
      if (v != v) std::memcpy(bytes.data() + at, &nan, sizeof(nan));
    }
  };
  for (size_t i = 0; outcome[0] == "OK" && i < types.size(); ++i) {
    if (types[i] == DType::kF32) settle(outcome[i + 1], std::numeric_limits<float>::quiet_NaN());
    if (types[i] == DType::kF64) settle(outcome[i + 1], std::numeric_limits<double>::quiet_NaN());
  }
  return outcome;
}

// Bits are those of the nodes run alone, except for those of NaNs, and for floats that are narrower
// than their computing type. OPWIRE_PROGRAMS: the number of programs.
TEST_F(FusionTest, RandomProgramsGiveEqualResults) {
  if (!std::getenv("OPWIRE_PROGRAMS") && !device_->info().host_memory)
    GTEST_SKIP() << "each group would be compiled: OPWIRE_PROGRAMS says for how many programs";
  const uint64_t programs = ProgramCount(150);
  uint64_t done = 0, groups = 0;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    RandomOptions options{.nodes = 25, .control = seed % 3 == 0};
    options.decorations = false;  // pins
    options.dtypes = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kBool};
    if (seed % 2 == 0) {
      options.dtypes = {seed % 4 == 0 ? DType::kF32 : DType::kI32};
      options.ops = {"add", "sub",    "mul",  "div", "neg",     "abs",     "maximum", "where",
                     "lt",  "expand", "full", "sum", "reshape", "permute", "matmul",  "cat"};
    }
    const Module m = RandomModule(rng, options);
    const std::string text = Print(m);
    if (text.find("16[") != text.npos && text.find("f16[") != text.npos) continue;
    if (text.find("f8e") != text.npos) continue;
    Start(false);
    const std::vector<std::string> alone = WithOneNan(m, Outcome(c_, m, seed));
    Start(true);
    const std::vector<std::string> fused = WithOneNan(m, Outcome(c_, m, seed));
    // If several values are outside their domains, or several extents are not supported, the kernel
    // may report another one first.
    constexpr std::string_view kExtent = "an extent of 0 has no largest or smallest element";
    const auto refuses = [&](const std::string& outcome) {
      return outcome.starts_with("UNIMPLEMENTED") && outcome.find(kExtent) != outcome.npos;
    };
    if (alone[0].starts_with("OUT_OF_RANGE"))
      EXPECT_TRUE(fused[0].starts_with("OUT_OF_RANGE")) << fused[0];
    else if (refuses(alone[0]))
      EXPECT_TRUE(refuses(fused[0])) << fused[0];
    else
      EXPECT_EQ(fused, alone) << text;
    done += alone[0] == "OK";
    const auto set = std::make_shared<KernelSet>(KernelSet{.fuser = built_, .variants = variants_});
    const std::shared_ptr<Program> program =
        PrepareProgram(Serialise(m), set, ExecutorLimits()).value();
    for (const FunctionPlan& plan : program->plans) groups += plan.schedule.groups.size();
  }
  EXPECT_GT(groups, programs / 3);
  EXPECT_GT(done, programs / 3) << "most programs run to their end";
  fmt::print("{} programs, {} of which ran to their end, with {} groups\n", programs, done, groups);
}

}  // namespace
}  // namespace opwire::executor

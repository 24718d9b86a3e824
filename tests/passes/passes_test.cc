// The effect of each pass on programs, as text.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/programs.h"

namespace opwire {
namespace {

// Returns the program after all passes. `only`: only this pass runs, until it finds no more
// changes.
std::string After(const std::string& text, const std::string& only = "",
                  Accuracy accuracy = Accuracy::kUsual) {
  Module m = Parsed(text);
  PipelineOptions options = only.empty() ? PipelineOptions() : OnlyPasses({only});
  options.accuracy = accuracy;
  const auto report = RunPasses(m, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return Print(m);
}

void Becomes(const std::string& from, const std::string& to, const std::string& only = "",
             Accuracy accuracy = Accuracy::kUsual) {
  EXPECT_EQ(After(from, only, accuracy), Print(Parsed(to)));
}

TEST(Passes, LeaveInoutParametersUnreadAfterTheirEnd) {
  for (const char* const text :
       {"program @f(%x: f32[4], inout %w: f32[4]) -> (y: f32[4], w: f32[4]) { %0 = neg(%w) %1 = "
        "exp(%w) %2 = add(%x, %0) return %2, %1 }",
        "program @f(inout %w: f32[4]) -> (y: f32[4, 1], w: f32[4]) { %0 = reshape(%w) {shape = [2, "
        "2]} %1 = exp(%w) %2 = reshape(%0) {shape = [4, 1]} return %2, %1 }"}) {
    Becomes(text, text);
  }
}

TEST(Passes, LeaveViewsThatOnlyASymbolJoins) {
  for (const char* const op : {"reshape", "expand"}) {
    const std::string text =
        std::string("program @f(%x: f32[4], %m: f32[?m]) -> (y: f32[5]) { %0 = ") + op +
        "(%x) {shape = [?m]} %1 = " + op + "(%0) {shape = [5]} return %1 }";
    Becomes(text, text);
  }
}

TEST(Passes, CanonicaliseOrdersOperandsAndDropsDefaults) {
  Becomes(R"(program @f(%s: f32[], %x: f32[4]) -> (z: f32[4]) { %0 = add(%s, %x) return %0 })",
          R"(program @f(%s: f32[], %x: f32[4]) -> (z: f32[4]) { %0 = add(%x, %s) return %0 })",
          "canonicalise");
  Becomes(R"(program @f(%x: f32[4], %y: f32[4]) -> (z: f32[4]) {
               %0 = full() {value = 2.0, dtype = f32}
               %1 = mul(%0, %x)
               %2 = add(%y, %x)
               %3 = sub(%y, %x)
               %4 = add(%1, %2)
               %5 = add(%4, %3)
               return %5 })",
          R"(program @f(%x: f32[4], %y: f32[4]) -> (z: f32[4]) {
               %0 = full() {value = 2.0}
               %1 = mul(%x, %0)
               %2 = add(%x, %y)
               %3 = sub(%y, %x)
               %4 = add(%1, %2)
               %5 = add(%3, %4)
               return %5 })",
          "canonicalise");
}

TEST(Passes, ConstantsOfOneValueHaveRankZeroWhereTheyBroadcast) {
  Becomes(R"(program @f(%x: f32[4, ?n], %y: f32[?n]) -> (a: f32[4, ?n], b: f32[4, ?n]) {
               %0 = full() {shape = [4, ?n], value = 2.0}
               %1 = mul(%x, %0)
               %2 = add(%y, %0)
               return %1, %2 })",
          R"(program @f(%x: f32[4, ?n], %y: f32[?n]) -> (a: f32[4, ?n], b: f32[4, ?n]) {
               %0 = full() {shape = [4, ?n], value = 2.0}
               %1 = full() {value = 2.0}
               %2 = mul(%x, %1)
               %3 = add(%y, %0)
               return %2, %3 })",
          "canonicalise");
}

TEST(Passes, FoldingGivesTheConstantsThatKernelsWould) {
  Becomes(R"(program @f(%x: f32[?n]) -> (y: f32[?n], k: i64[], v: f32[2], w: f32[?n]) {
               %0 = full() {value = 2.0}
               %1 = sqrt(%0)
               %2 = mul(%x, %1)
               %3 = full() {value = 7.0, dtype = i64}
               %4 = full() {value = 2.0, dtype = i64}
               %5 = div(%3, %4)
               %6 = values() {value = [1.0, 4.0]}
               %7 = mul(%6, %0)
               %8 = expand(%1) {shape = [?n]}
               return %2, %5, %7, %8 })",
          R"(program @f(%x: f32[?n]) -> (y: f32[?n], k: i64[], v: f32[2], w: f32[?n]) {
               %0 = full() {value = 1.4142135381698608}
               %1 = mul(%x, %0)
               %2 = full() {value = 3.0, dtype = i64}
               %3 = constant() {type = f32[2], value = #0}
               %4 = full() {shape = [?n], value = 1.4142135381698608}
               return %1, %2, %3, %4 }
             blob 0 = "0000004000000041")");
}

TEST(Passes, ExactFoldingStopsAtWhatDevicesRoundTheirWay) {
  const std::string text = R"(program @f() -> (y: f32[], z: f32[]) {
               %0 = full() {value = 2.0}
               %1 = exp(%0)
               %2 = sqrt(%0)
               return %1, %2 })";
  Becomes(text, R"(program @f() -> (y: f32[], z: f32[]) {
               %0 = full() {value = 2.0}
               %1 = exp(%0)
               %2 = full() {value = 1.4142135381698608}
               return %1, %2 })",
          "", Accuracy::kExact);
}

TEST(Passes, FoldingLeavesWhatARunWouldReport) {
  const std::string divides = R"(program @f() -> (y: i32[]) {
               %0 = full() {value = 1.0, dtype = i32}
               %1 = full() {value = 0.0, dtype = i32}
               %2 = div(%0, %1)
               return %2 })";
  Becomes(divides, divides);
}

TEST(Passes, FoldingMakesNoProgramLarge) {
  const std::string large = R"(program @f() -> (y: f32[65536]) {
               %0 = values() {value = [1.0, 2.0]}
               %1 = full() {shape = [32768, 2], value = 0.5}
               %2 = add(%1, %0)
               %3 = reshape(%2) {shape = [65536]}
               return %3 })";
  Becomes(large, large);
}

TEST(Passes, RulesWithConstantsMakeOneOfThem) {
  Becomes(R"(program @f(%x: i32[3]) -> (y: i32[3]) {
               %0 = full() {value = 5.0, dtype = i32}
               %1 = full() {value = 7.0, dtype = i32}
               %2 = add(%0, %x)
               %3 = add(%1, %2)
               return %3 })",
          R"(program @f(%x: i32[3]) -> (y: i32[3]) {
               %0 = full() {value = 12.0, dtype = i32}
               %1 = add(%x, %0)
               return %1 })");
}

TEST(Passes, AccuracyDecides) {
  const std::string zero = R"(program @f(%x: f32[3]) -> (y: f32[3]) {
               %0 = zeros()
               %1 = add(%x, %0)
               return %1 })";
  Becomes(zero, zero);
  Becomes(zero, "program @f(%x: f32[3]) -> (y: f32[3]) { return %x }", "", Accuracy::kFast);
  const std::string square = R"(program @f(%x: f32[3]) -> (y: f32[3]) {
               %0 = full() {value = 2.0}
               %1 = pow(%x, %0)
               return %1 })";
  Becomes(square, square, "", Accuracy::kExact);
  Becomes(square, "program @f(%x: f32[3]) -> (y: f32[3]) { %0 = mul(%x, %x) return %0 }");
}

TEST(Passes, DivisorsBecomeFactorsWhereTheReciprocalIsNormal) {
  const auto becomes = [](const std::string& type, const std::string& c,
                          const std::string& factor) {
    const std::string head = "program @f(%x: " + type + "[3]) -> (y: " + type + "[3]) { ";
    const auto text = [&](const std::string& op, const std::string& value) {
      return head + "%0 = full() {value = " + value + (type == "f32" ? "" : ", dtype = " + type) +
             "} %1 = " + op + "(%x, %0) return %1 }";
    };
    Becomes(text("div", c), factor.empty() ? text("div", c) : text("mul", factor), "",
            Accuracy::kFast);
  };
  becomes("f64", "8.0", "0.125");
  becomes("f16", "1024.0", "0.0009765625");
  becomes("f16", "1e-05", "");    // 1 / c is infinite
  becomes("f16", "60000.0", "");  // subnormal
  becomes("f32", "1e-39", "");    // c is
  becomes("f64", "1e-310", "");
  becomes("bf16", "3e+38", "");
}

TEST(Passes, ShapesChangeHands) {
  Becomes(
      R"(program @f(%x: f32[2, 3, 4], %w: f32[3, 5]) -> (y: f32[24], t: f32[4, 2, 3], p: f32[2, 4, 5], c: f32[2, 3, 4]) {
               %0 = reshape(%x) {shape = [6, 4]}
               %1 = reshape(%0) {shape = [24]}
               %2 = permute(%x) {dims = [1, -1, 0]}
               %3 = permute(%2) {dims = [1, 2, 0]}
               %4 = permute(%x) {dims = [0, 2, 1]}
               %5 = matmul(%4, %w)
               %6 = cast(%x) {dtype = f64}
               %7 = cast(%6) {dtype = f32}
               return %1, %3, %5, %7 })",
      R"(program @f(%x: f32[2, 3, 4], %w: f32[3, 5]) -> (y: f32[24], t: f32[4, 2, 3], p: f32[2, 4, 5], c: f32[2, 3, 4]) {
               %0 = reshape(%x) {shape = [24]}
               %1 = permute(%x) {dims = [2, 0, 1]}
               %2 = matmul(%x, %w) {transpose_x = true}
               return %0, %1, %2, %x })");
}

TEST(Passes, CastsThatLoseSomethingStay) {
  for (const char* through : {"i32", "f16", "bool", "u64"}) {
    const std::string text =
        std::string("program @f(%x: i64[2]) -> (y: i64[2]) { %0 = cast(%x) {dtype = ") + through +
        "} %1 = cast(%0) {dtype = i64} return %1 }";
    Becomes(text, text);
  }
}

TEST(Passes, EqualNodesAreShared) {
  Becomes(R"(program @f(%x: f32[4], %k: u64[2]) -> (a: f32[4], b: f32[4], u: f32[4], v: f32[4]) {
               %0 = zeros()
               %1 = full() {value = 1.0}
               %2 = uniform(%k, %0, %1) {shape = [4]}
               %3 = uniform(%k, %0, %1) {shape = [4]}
               %4 = uniform(%k, %0, %1) {shape = [4], site = 1}
               %5 = exp(%x)
               %6 = exp(%x)
               %7 = add(%5, %6)
               %8 = add(%2, %3)
               return %7, %8, %4, %6 })",
          R"(program @f(%x: f32[4], %k: u64[2]) -> (a: f32[4], b: f32[4], u: f32[4], v: f32[4]) {
               %0 = zeros()
               %1 = full() {value = 1.0}
               %2 = uniform(%k, %0, %1) {shape = [4]}
               %3 = uniform(%k, %0, %1) {shape = [4], site = 1}
               %4 = exp(%x)
               %5 = add(%4, %4)
               %6 = add(%2, %2)
               return %5, %6, %3, %4 })");
}

TEST(Passes, ZerosOfBothSignsAreTwo) {
  const std::string text = R"(program @f() -> (a: f32[], b: f32[]) {
               %0 = full() {value = 0.0}
               %1 = full() {value = -0.0}
               return %0, %1 })";
  Becomes(text, text);
}

TEST(Passes, WhatNobodyReadsGoesWithItsBytes) {
  Becomes(R"(program @f(%x: f32[2]) -> (y: f32[2]) {
               %0 = constant() {type = f32[2], value = #0}
               %1 = constant() {type = f32[2], value = #1}
               %2 = add(%x, %0)
               %3 = add(%x, %1)
               return %3 }
             blob 0 = "0000000000000000" blob 1 = "0000803f00000040")",
          R"(program @f(%x: f32[2]) -> (y: f32[2]) {
               %0 = constant() {type = f32[2], value = #0}
               %1 = add(%x, %0)
               return %1 }
             blob 0 = "0000803f00000040")");
}

TEST(Passes, PinnedNodesStayAsTheyAre) {
  const std::string text = R"(program @f(%x: f32[2]) -> (y: f32[2]) {
               %0 = neg@reference(%x)
               %1 = neg@reference(%0)
               return %1 })";
  Becomes(text, text);
}

// %w is read only until it is replaced. The value that replaces it is a value of its own, under no
// other name.
TEST(Passes, InoutParametersKeepTheirRules) {
  const std::string kept[] = {
      // add(%w, 0) is %w, but %w cannot be returned.
      R"(program @f(inout %w: i32[2]) -> (w: i32[2]) {
           %0 = zeros() {dtype = i32}
           %1 = add(%w, %0)
           return %1 })",
      // Because of the copy, the old value can be read after the end of %w.
      R"(program @f(inout %w: i32[2], %x: i32[2]) -> (w: i32[2], y: i32[2]) {
           %0 = copy(%w)
           %1 = add(%w, %x)
           %2 = mul(%0, %x)
           return %1, %2 })",
      R"(program @f(inout %w: i32[2], %x: i32[2]) -> (w: i32[2], old: i32[2]) {
           %0 = copy(%w)
           %1 = add(%w, %x)
           return %1, %0 })",
      // Equal, but the first becomes the parameter's storage, which no other result may be.
      R"(program @f(inout %w: i32[2], %x: i32[2]) -> (w: i32[2], y: i32[2]) {
           %0 = add(%x, %x)
           %1 = add(%x, %x)
           return %0, %1 })",
      // Equal, but the second becomes the parameter's storage.
      R"(program @f(inout %w: i32[2], %x: i32[2]) -> (w: i32[2], y: i32[2]) {
           %0 = add(%x, %w)
           %1 = add(%x, %w)
           return %1, %0 })",
  };
  for (const std::string& text : kept) {
    Module m = Parsed(text);
    ASSERT_OK(VerifyModule(m).status());
    const auto report = RunPasses(m);
    ASSERT_OK(report.status());
    EXPECT_EQ(m.functions[0].nodes.size(), Parsed(text).functions[0].nodes.size()) << Print(m);
  }
  // Before its end %w is an ordinary value, and the value that replaces it may become another node.
  Becomes(R"(program @f(inout %w: f32[2], %x: f32[2]) -> (w: f32[2], y: f32[2]) {
               %0 = copy(%w)
               %1 = mul(%0, %x)
               %2 = neg(%x)
               %3 = add(%0, %2)
               return %3, %1 })",
          R"(program @f(inout %w: f32[2], %x: f32[2]) -> (w: f32[2], y: f32[2]) {
               %0 = mul(%w, %x)
               %1 = sub(%w, %x)
               return %1, %0 })");
}

TEST(Passes, EveryFunctionOfAModule) {
  const std::string text =
      After(R"(program @f(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) %1 = neg(%0) return %1 }
                                    function @g(%x: f32[2]) -> (y: f32[2]) { %0 = abs(%x) %1 = abs(%0) return %1 })");
  EXPECT_EQ(text.find("neg"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '='), 1) << text;
}

TEST(Pipeline, ReportsWhatEachPassDid) {
  Module m = Parsed(R"(dim ?b in [1, 4096] multiple 8
                       program @f(%x: f32[?b, 16]) -> (y: f32[?b, 16]) {
                         %0 = neg(%x)
                         %1 = neg(%0)
                         %2 = exp(%1)
                         %3 = tanh(%2)
                         return %3 })");
  ASSERT_OK_AND(const PipelineReport report, RunPasses(m, {.sizes = {{"b", 8}}}));
  const auto simplify = std::ranges::find(report.runs, "simplify", &PassReport::pass);
  ASSERT_NE(simplify, report.runs.end());
  EXPECT_EQ(simplify->changes, 1);
  constexpr int64_t kValue = 8 * 16 * 4;
  EXPECT_EQ(simplify->before,
            (ProgramCost{.nodes = 4, .bytes_moved = 8 * kValue, .peak_bytes = 2 * kValue}));
  EXPECT_EQ(report.runs.back().after,
            (ProgramCost{.nodes = 2, .bytes_moved = 4 * kValue, .peak_bytes = kValue}));
  EXPECT_EQ(m.functions[0].nodes.size(), 2u);
}

// Repeated constant folding holds many times the bytes of the constant until dead nodes are
// removed. Rules that add a node wait for room.
TEST(Pipeline, StaysWithinTheLimits) {
  std::string values, chain;
  for (int i = 0; i < 4096; ++i) values += (i ? ", " : "") + std::to_string(i) + ".5";
  for (int i = 1; i <= 40; ++i)
    chain += "%" + std::to_string(i) + " = neg(%" + std::to_string(i - 1) + ")\n";
  Module folded = Parsed("program @f() -> (y: f64[4096]) { %0 = values() {value = [" + values +
                         "], dtype = f64}\n" + chain + "return %39 }");
  Limits limits;
  limits.blob_bytes = 5 * 32768;
  ASSERT_OK_AND(const PipelineReport report, RunPasses(folded, {.limits = limits}));
  EXPECT_TRUE(report.done);
  EXPECT_LE(folded.functions[0].nodes.size(), 1u) << Print(folded).substr(0, 500);

  Module full = Parsed(R"(program @f(%x: i32[3]) -> (y: i32[3], z: i32[]) {
               %0 = full() {value = 5.0, dtype = i32}
               %1 = full() {value = 7.0, dtype = i32}
               %2 = add(%x, %0)
               %3 = add(%2, %1)
               return %3, %0 })");
  limits.nodes = 4;
  ASSERT_OK(RunPasses(full, {.limits = limits}).status());
}

TEST(Pipeline, GoesOnUntilNothingIsLeft) {
  std::string text =
      "program @f(%x: i32[3]) -> (y: i32[3]) { %a0 = zeros() {shape = [3], dtype = i32}\n";
  for (int i = 1; i <= 40; ++i)
    text += "%b" + std::to_string(i) + " = mul(%x, %a" + std::to_string(i - 1) + ") %a" +
            std::to_string(i) + " = neg(%b" + std::to_string(i) + ")\n";
  Module m = Parsed(text + "return %a40 }");
  ASSERT_OK_AND(const PipelineReport report, RunPasses(m));
  EXPECT_TRUE(report.done);
  EXPECT_EQ(m.functions[0].nodes.size(), 1u) << Print(m);
}

TEST(Pipeline, EndsAfterThePassThatIsNamed) {
  Module m =
      Parsed("program @f(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) %1 = neg(%0) return %1 }");
  ASSERT_OK_AND(const PipelineReport report, RunPasses(m, {.after = "simplify"}));
  EXPECT_EQ(report.runs.back().pass, "simplify");
  EXPECT_EQ(m.functions[0].nodes.size(), 1u) << "the dead node is still there";
}

// Here every tanh becomes a sigmoid: the user is responsible for the meaning of their own pass.
TEST(Pipeline, PassesOfUsersAreTextToText) {
  Module m = Parsed(
      "program @f(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) %1 = neg(%0) %2 = tanh(%1) return %2 "
      "}");
  const OwnPass own{"own", [](const std::string& text) -> StatusOr<std::string> {
                      std::string out = text;
                      if (const size_t at = out.find("tanh"); at != std::string::npos)
                        out.replace(at, 4, "sigmoid");
                      return out;
                    }};
  ASSERT_OK_AND(const PipelineReport report, RunPasses(m, {.own = {own}}));
  EXPECT_EQ(Print(m),
            Print(Parsed("program @f(%x: f32[2]) -> (y: f32[2]) { %0 = sigmoid(%x) return %0 }")));
  const auto run = std::ranges::find(report.runs, "own", &PassReport::pass);
  ASSERT_NE(run, report.runs.end());
  EXPECT_EQ(run->changes, 1);

  const auto wrong = [&](const std::string& output) {
    return std::string(
        RunPasses(
            m,
            {.own = {{"own", [=](const std::string&) -> StatusOr<std::string> { return output; }}}})
            .status()
            .message());
  };
  EXPECT_EQ(wrong("what?"), "pass own: its output:1:1: expected program, got what");
  EXPECT_EQ(wrong("program @f(%x: f32[3]) -> (y: f32[3]) { return %x }"),
            "pass own: expected the same symbols, parameters and results: %x: f32[2], -> y: "
            "f32[2], got %x: f32[3], -> y: f32[3], ");
}

TEST(Passes, InlineBranchesOfAKnownCondition) {
  const auto branch = [](const std::string& condition) {
    return "program @f(%x: f32[4], %p: bool[]) -> (y: f32[4], z: f32[4]) { %0 = full() {value = " +
           condition + ", dtype = bool} %1, %2 = if(%" + (condition == "?" ? "p" : "0") +
           ", [%x]) calls(@then, @otherwise) -> (f32[4], f32[4]) return %1, %2 }\n"
           "function @then(%x: f32[4]) -> (y: f32[4], z: f32[4]) { %0 = exp(%x) emit(%0) {name = "
           "\"y\"} return %0, %x }\n"
           "function @otherwise(%x: f32[4]) -> (y: f32[4], z: f32[4]) { %0 = neg(%x) %1 = full() "
           "{value = 0.0, dtype = bool}"
           " %2 = if(%1, [%0]) calls(@root, @sine) -> (f32[4]) return %0, %2 }\n"
           "function @root(%x: f32[4]) -> (y: f32[4]) { %0 = sqrt(%x) return %0 }\n"
           "function @sine(%x: f32[4]) -> (y: f32[4]) { %0 = sin(%x) return %0 }\n";
  };
  Becomes(branch("1.0"),
          "program @f(%x: f32[4], %p: bool[]) -> (y: f32[4], z: f32[4]) { %0 = exp(%x) emit(%0) "
          "{name = \"y\"} return %0, %x }");
  Becomes(branch("0.0"),
          "program @f(%x: f32[4], %p: bool[]) -> (y: f32[4], z: f32[4]) { %0 = neg(%x) %1 = "
          "sin(%0) return %0, %1 }");
}

TEST(Passes, InlineLoopsOfOneIterationOrNone) {
  const std::string body =
      "function @step(%iteration: i64[], %x: f32[4], %s: i64[], %w: f32[4]) -> (x: f32[4], s: "
      "i64[]) { "
      "%0 = sub(%x, %w) %1 = sub(%s, %iteration) return %0, %1 }";
  const auto loop = [&](const std::string& times) {
    return "program @f(%x: f32[4], %s: i64[], %w: f32[4]) -> (x: f32[4], s: i64[]) { %0 = full() "
           "{value = " +
           times +
           ", dtype = i64} %1, %2 = repeat(%0, [%x, %s], [%w]) calls(@step) return %1, %2 }\n" +
           body;
  };
  for (const char* const none : {"0.0", "-3.0"})
    Becomes(
        loop(none),
        "program @f(%x: f32[4], %s: i64[], %w: f32[4]) -> (x: f32[4], s: i64[]) { return %x, %s }");
  Becomes(loop("1.0"),
          "program @f(%x: f32[4], %s: i64[], %w: f32[4]) -> (x: f32[4], s: i64[]) { %0 = sub(%x, "
          "%w) return %0, %s }");
  Becomes(loop("2.0"), loop("2.0"));
}

// Its body may read the parameter after the value that replaces it.
TEST(Passes, LeaveLoopsThatReplaceInoutParameters) {
  const char* const text = R"(
program @f(inout %x: f32[4], %s: f32[4]) -> (x: f32[4], s: f32[4]) {
  %0 = full() {value = 1.0, dtype = i64}
  %1, %2 = repeat(%0, [%x, %s], []) calls(@step)
  return %1, %2
}
function @step(%iteration: i64[], %x: f32[4], %s: f32[4]) -> (x: f32[4], s: f32[4]) {
  %0 = exp(%s)
  %1 = sub(%s, %x)
  return %0, %1
})";
  EXPECT_NE(After(text).find("repeat("), std::string::npos);
}

TEST(Pipeline, FormerNamesOfPasses) {
  Module m = Parsed("program @f(%x: f32[2]) -> (y: f32[2]) { return %x }");
  ASSERT_OK_AND(const PipelineReport skipped,
                RunPasses(m, {.skip = {"fold", "products", "folds"}}));
  for (const PassReport& run : skipped.runs) {
    EXPECT_NE(run.pass, "constant-fold");
    EXPECT_NE(run.pass, "matmul");
    EXPECT_NE(run.pass, "split-reductions");
  }
  ASSERT_OK_AND(const PipelineReport ended, RunPasses(m, {.after = "fold"}));
  ASSERT_FALSE(ended.runs.empty());
  EXPECT_EQ(ended.runs.back().pass, "constant-fold");
}

TEST(Pipeline, BadInput) {
  Module m = Parsed("program @f(%x: f32[2]) -> (y: f32[2]) { return %x }");
  EXPECT_EQ(RunPasses(m, {.skip = {"simplifi"}}).status().ToString(),
            "INVALID_ARGUMENT: no pass 'simplifi', did you mean simplify?; there are canonicalise, "
            "constant-fold, inline, simplify, shapes, matmul, norms, losses, split-reductions, "
            "share, join, dead");
  EXPECT_EQ(RunPasses(m, {.after = "x"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunPasses(m, {.skip = {"dead"}, .after = "dead"}).status().ToString(),
            "INVALID_ARGUMENT: pass dead is to be the last and is to be skipped");
  Module broken = m;
  broken.functions[0].results[0].value = 7;
  EXPECT_EQ(RunPasses(broken).status().code(), absl::StatusCode::kInvalidArgument);
  Module sized = Parsed("dim ?b in [1, 8] program @f(%x: f32[?b]) -> (y: f32[?b]) { return %x }");
  EXPECT_EQ(RunPasses(sized, {.sizes = {{"b", 9}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace opwire

// Gradients against central differences in f64, by the reference kernels, for every op that has
// one. Loops are in gradient_loops_test.cc, branches in gradient_branches_test.cc.
#include "ir/passes/gradient.h"

#include <fmt/format.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/gradient_cases.h"
#include "tests/passes/gradient_fixture.h"

namespace opwire {
namespace {

TEST_F(GradientTest, EveryRowThatHasOneButLoopsAndBranches) {
  OPWIRE_TRACE_SEED();
  Check(BodyCases());
  Check(RowCases());
  std::set<std::string> rows = RowsWithGradients();
  rows.erase("repeat");
  rows.erase("if");
  EXPECT_EQ(seen_, rows);
}

TEST_F(GradientTest, WholePrograms) {
  OPWIRE_TRACE_SEED();
  Check(ProgramCases());
}

TEST_F(GradientTest, CountsItsNans) {
  ASSERT_OK_AND(const Module m,
                Parse("program @f(%x: f64[2], %n: i64[1]) -> (loss: f64[], nans: i64[1]) { %y = "
                      "sqrt(%x) loc(\"model.py:3\") %loss = sum(%y) return %loss, %n }",
                      "test.opw"));
  const std::vector<std::string> wrt = {"x"};
  std::vector<std::string> counted;
  ASSERT_OK_AND(const Module with,
                Gradient(m, wrt, {.loss = "loss", .nans = "nans", .counted = &counted}));
  EXPECT_EQ(counted, (std::vector<std::string>{"gradient of sum f64[2]",
                                               "gradient of sqrt f64[2] (model.py:3)"}));
  EXPECT_NE(Print(with).find("nans: i64[3]"), std::string::npos) << Print(with);
  EXPECT_EQ(Gradient(m, wrt, {.loss = "loss", .nans = "none"}).status(),
            InvalidArgument("gradient: there is no result 'none' that counts NaNs"));
}

TEST_F(GradientTest, TheAngleOfTheOriginIsFlat) {
  ASSERT_OK_AND(const Module m, Parse("program @f(%y: f64[2], %x: f64[2]) -> (loss: f64[]) { %a = "
                                      "atan2(%y, %x) %loss = sum(%a) return %loss }",
                                      "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, WantedOf(m)));
  Values inputs = {{"y", {0, 0}}, {"x", {0, 2}}};
  const Values results = Run(with, inputs, -2, 2);
  EXPECT_EQ(results.at("grad.y"), (std::vector<double>{0, 0.5}));
  EXPECT_EQ(results.at("grad.x"), (std::vector<double>{0, 0}));
}

TEST_F(GradientTest, GeluIsFlatWhereSquaresAreBeyondTheType) {
  for (const char* const type : {"f16", "f64"}) {
    ASSERT_OK_AND(const Module m,
                  Parse(fmt::format("program @f(%x: {0}[4]) -> (loss: {0}[]) {{ %0 = gelu_tanh(%x) "
                                    "%loss = sum(%0) return %loss }}",
                                    type),
                        "test.opw"));
    ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x"}));
    const double large = type == std::string("f16") ? 300 : 1e200;
    Values inputs = {{"x", {large, -large, 11, -11}}};
    EXPECT_EQ(Run(with, inputs, -2, 2).at("grad.x"), (std::vector<double>{1, 0, 1, 0})) << type;
  }
}

// As in libtorch: the gradient, too, shows the source of a NaN.
TEST_F(GradientTest, OfNansIsThatOfTheResult) {
  ASSERT_OK_AND(const Module m, Parse("program @f(%x: f32[4], %y: f32[4]) -> (loss: f32[]) { %0 = "
                                      "relu(%x) %1 = maximum(%x, %y) %2 = minimum(%x, %y) %3 = "
                                      "add(%0, %1) %4 = add(%3, %2) %loss = sum(%4) return %loss }",
                                      "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x", "y"}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Values inputs = {{"x", {nan, 1, -1, 3}}, {"y", {0, nan, -1, 2}}};
  const Values results = Run(with, inputs, -2, 2);
  EXPECT_EQ(results.at("grad.x"), (std::vector<double>{3, 3, 1, 2}));
  EXPECT_EQ(results.at("grad.y"), (std::vector<double>{2, 2, 1, 1}));
}

TEST_F(GradientTest, SumsOfWhatIsSmallStaySo) {
  ASSERT_OK_AND(
      const Module m,
      Parse("program @f(%x: f32[4], %y: f32[?b, 2], %w: f32[4]) -> (loss: f32[]) { %0 = cumsum(%x) "
            "{dim = 0} %1 = mul(%0, %w) %2 = sum(%1) %3 = cumsum(%y) {dim = -2} "
            "%4 = sum(%3) %loss = add(%2, %4) return %loss }",
            "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x", "y"}));
  Values inputs = {{"w", {1e9, 1, 2, 4}}};
  const Values results = Run(with, inputs, -2, 2);
  EXPECT_EQ(results.at("grad.x"), (std::vector<double>{1e9, 7, 6, 4}));
  const std::vector<double>& y = results.at("grad.y");
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<double>(y.size() / 2 - i / 2));
}

TEST_F(GradientTest, ManyThatAreTheLargestShareInNarrowFloats) {
  ASSERT_OK_AND(const Module m, Parse("program @f(%x: f16[70000]) -> (loss: f32[]) { %0 = amax(%x) "
                                      "{dims = [0]} %1 = cast(%0) {dtype = f32} %2 = full() {value "
                                      "= 700.0, dtype = f32} %loss = mul(%1, %2) return %loss }",
                                      "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x"}));
  Values inputs = {{"x", std::vector<double>(70000, 3)}};
  const Values results = Run(with, inputs, -2, 2);
  for (const double g : results.at("grad.x")) ASSERT_NEAR(g, 0.01, 1e-5);
}

// 1 / 70,000 has eight bits in f16; the gradient of a scaled loss has all bits.
TEST_F(GradientTest, PartsOfMeansAreMadeBeforeTheyAreRounded) {
  ASSERT_OK_AND(const Module m, Parse("program @f(%x: f16[70000], %s: f16[]) -> (loss: f16[]) { %0 "
                                      "= mean(%x) %loss = mul(%0, %s) return %loss }",
                                      "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x"}));
  Values inputs = {{"x", std::vector<double>(70000, 1)}, {"s", {32768}}};
  const Values results = Run(with, inputs, -2, 2);
  for (const double g : results.at("grad.x"))
    ASSERT_NEAR(g, 32768.0 / 70000, 0x1p-12);  // half an ulp is 2^-13
}

// An inout parameter that the program has replaced before the backward pass reads it.
TEST_F(GradientTest, WhatWasReplacedIsKept) {
  OPWIRE_TRACE_SEED();
  Check(
      R"(program @f(%x: f64[3], %z: f64[3], inout %s: f64[3], inout %t: f64[3]) -> (s: f64[3], t: f64[3], loss: f64[]) {
             %0 = mul(%x, %s)
             %1 = mul(%z, %t)
             %2 = add(%s, %0)
             %3 = mul(%2, %z)
             %4 = add(%t, %3)
             %5 = mul(%4, %1)
             %loss = sum(%5)
             return %2, %4, %loss })");
  Check(R"(program @f(%x: f64[3], inout %w: f64[3]) -> (w: f64[3], loss: f64[]) {
             %n = full() {value = 3.0, dtype = i64}
             %y = repeat(%n, [%x], [%w]) calls(@step)
             %loss = sum(%y)
             %u = neg(%w)
             return %u, %loss }
           function @step(%iteration: i64[], %x: f64[3], %w: f64[3]) -> (x: f64[3]) { %0 = mul(%x, %w) return %0 })");
}

TEST_F(GradientTest, OtherTypesKeepTheirs) {
  ASSERT_OK_AND(const Module m, Parse(R"(program @f(%x: bf16[3, 4], %w: f32[4]) -> (loss: f32[]) {
                                           %a = cast(%x) {dtype = f32}
                                           %b = mul(%a, %w)
                                           %c = cast(%b) {dtype = bf16}
                                           %d = mean(%c) {dims = [0]}
                                           %e = cast(%d) {dtype = f32}
                                           %loss = sum(%e)
                                           return %loss })",
                                      "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x", "w"}));
  const ValueTypes values(with.functions[0]);
  const auto type = [&](size_t result) {
    return ToString(*values.types[static_cast<size_t>(with.functions[0].results[result].value)],
                    with.dims);
  };
  EXPECT_EQ(type(1), "bf16[3, 4]");
  EXPECT_EQ(type(2), "f32[4]");
}

TEST(Gradient, Errors) {
  const auto error = [](const std::string& text, const std::vector<std::string>& wrt,
                        const std::string& loss = "") {
    auto m = Parse(text, "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    return Gradient(*std::move(m), wrt, {.loss = loss}).status().ToString();
  };
  const std::string two =
      "program @f(%x: f32[2], %i: i64[2], inout %w: f32[2]) -> (a: f32[], b: f32[], v: f32[2], w: "
      "f32[2]) { %0 = sum(%x) %1 = mean(%x) %2 = add(%w, %x) return %0, %1, %x, %2 }";
  EXPECT_EQ(error(two, {"x"}),
            "INVALID_ARGUMENT: gradient: expected one loss, 2 could be it: a, b");
  EXPECT_EQ(error(two, {"x"}, "v"),
            "INVALID_ARGUMENT: gradient: expected a loss that is a float of rank 0, v is not");
  EXPECT_EQ(error(two, {"x"}, "bb"),
            "INVALID_ARGUMENT: gradient: the program has no result bb, did you mean b?");
  EXPECT_EQ(error(two, {"y"}, "a"), "INVALID_ARGUMENT: gradient: the program has no parameter y");
  EXPECT_EQ(error(two, {"i"}, "a"),
            "INVALID_ARGUMENT: gradient: expected a parameter of floats, i is of i64");
  EXPECT_EQ(error(two, {"w"}, "a"),
            "INVALID_ARGUMENT: gradient: expected a parameter that is only read, w is inout");
  EXPECT_EQ(error(two, {"x", "x"}, "a"), "INVALID_ARGUMENT: gradient: x is named twice");
  EXPECT_EQ(
      error("program @f(%x: f32[2]) -> (y: f32[2]) { return %x }", {"x"}),
      "INVALID_ARGUMENT: gradient: expected a result that is a float of rank 0, to be the loss");
  EXPECT_EQ(
      error(
          R"(program @f(%x: f32[2]) -> (y: f32[]) { %0, %m = l2_norm([%x]) loc("model.py:3") return %0 })",
          {"x"}),
      "UNIMPLEMENTED: gradient: there is none of l2_norm (node %0 of \"f\", model.py:3) by its "
      "norm");
  EXPECT_EQ(error("program @f(%q: f32[1, 2, 4, 8]) -> (y: f32[]) { %o, %l = "
                  "scaled_dot_product_attention(%q, %q, %q) %0 = sum(%l) return %0 }",
                  {"q"}),
            "UNIMPLEMENTED: gradient: there is none of scaled_dot_product_attention (node %0 of "
            "\"f\") by its logsumexp");
}

}  // namespace
}  // namespace opwire

// Losses that are joined with their gradient: which losses join, which stay, and that the meaning
// is the same.
#include <gtest/gtest.h>

#include <cstring>

#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/outcome.h"
#include "tests/passes/programs.h"
#include "tests/seed.h"

namespace opwire {
namespace {

std::string Joined(const std::string& text, Accuracy accuracy = Accuracy::kUsual) {
  Module m = Parsed(text);
  PipelineOptions options = OnlyPasses({"losses", "dead"});
  options.accuracy = accuracy;
  const auto report = RunPasses(m, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return Print(m);
}
void ExpectJoined(const std::string& from, const std::string& to) {
  EXPECT_EQ(Joined(from), Print(Parsed(to)));
}
void ExpectApart(const std::string& text) { ExpectJoined(text, text); }

// Returns a program of logits %x f32[?n, 5] and targets %t. `rest` is the text between the loss %0
// and the result %r.
std::string Program(const std::string& loss, const std::string& rest) {
  return "program @f(%x: f32[?n, 5], %t: i64[?n], %u: i64[?n], %g: f32[], %h: f32[?n]) -> (loss: "
         "f32[], r: f32[?n, 5]) {\n  %0 = " +
         loss + "\n" + rest + "\n return %0, %r }";
}

TEST(Losses, TakeTheirGradientIn) {
  ExpectJoined(
      Program("cross_entropy(%x, %t)", "%1 = cross_entropy_backward(%g, %x, %t) %r = relu(%1)"),
      R"(program @f(%x: f32[?n, 5], %t: i64[?n], %u: i64[?n], %g: f32[], %h: f32[?n]) -> (loss: f32[], r: f32[?n, 5]) {
    %0, %1 = cross_entropy_with_gradient(%g, %x, %t)
    %r = relu(%1)
    return %0, %r })");
  // The factor of the gradient is computed before the loss.
  ExpectJoined(
      R"(program @f(%x: f32[?n, 5], %t: i64[?n], %g: f32[]) -> (loss: f32[?n], r: f32[?n, 5]) {
    %0 = cross_entropy(%x, %t) {reduction = "none"}
    %1 = neg(%0)
    %2 = neg(%g)
    %3 = expand(%2) {shape = [?n]}
    %4 = cross_entropy_backward(%3, %x, %t) {reduction = "none"}
    %5 = relu(%4)
    return %1, %5 })",
      R"(program @f(%x: f32[?n, 5], %t: i64[?n], %g: f32[]) -> (loss: f32[?n], r: f32[?n, 5]) {
    %0 = neg(%g)
    %1 = expand(%0) {shape = [?n]}
    %2, %3 = cross_entropy_with_gradient(%1, %x, %t) {reduction = "none"}
    %4 = neg(%2)
    %5 = relu(%3)
    return %4, %5 })");
}

TEST(Losses, WhatDiffersStays) {
  for (const char* const gradient :
       {"cross_entropy_backward(%g, %x, %u)",
        "cross_entropy_backward(%h, %x, %t) {reduction = \"none\"}",
        "cross_entropy_backward(%g, %x, %t) {ignore_index = 3}",
        "cross_entropy_backward@reference(%g, %x, %t)", "cross_entropy_backward(%0, %x, %t)"}) {
    ExpectApart(
        Program("cross_entropy(%x, %t)", std::string("%1 = ") + gradient + " %r = relu(%1)"));
  }
  ExpectApart(Program("cross_entropy@reference(%x, %t)",
                      "%1 = cross_entropy_backward(%g, %x, %t) %r = relu(%1)"));
  ExpectApart(Program(
      "cross_entropy(%x, %t)",
      "%a = mul(%0, %g) %b = add(%a, %g) %1 = cross_entropy_backward(%b, %x, %t) %r = relu(%1)"));
  ExpectApart(Program("cross_entropy(%x, %t)",
                      "%y = relu(%x) %1 = cross_entropy_backward(%g, %y, %t) %r = relu(%1)"));
  ExpectApart(Program("cross_entropy(%x, %t)",
                      "%r = cross_entropy_backward(%g, %x, %t)"));  // as it is returned
  const std::string exact =
      Program("cross_entropy(%x, %t)", "%1 = cross_entropy_backward(%g, %x, %t) %r = relu(%1)");
  EXPECT_EQ(Joined(exact, Accuracy::kExact), Print(Parsed(exact)));
}

using LossesOutcome = OutcomeTest;

TEST_F(LossesOutcome, ATrainingProgramReadsItsLogitsOnce) {
  OPWIRE_TRACE_SEED();
  for (const char* const reduction : {"none", "mean", "sum"}) {
    Module m =
        Parsed(std::string("program @f(%x: f32[6, 4], %w: f32[9, 4], %t: i64[6]) -> (loss: f32[]) "
                           "{ %0 = linear(%x, %w) %1 = cross_entropy(%0, %t) {reduction = \"") +
               reduction + "\"} %2 = mean(%1) return %2 }");
    ASSERT_OK_AND(Module with, Gradient(std::move(m), std::vector<std::string>{"x", "w"}));
    const Module before = with;
    ASSERT_OK(RunPasses(with, {}).status());
    EXPECT_NE(Print(with).find("cross_entropy_with_gradient"), std::string::npos) << Print(with);
    EXPECT_EQ(Print(with).find("cross_entropy_backward"), std::string::npos) << Print(with);
    int compared = 0;
    // Targets in their domain: most random targets are outside, and runs that fail are not
    // compared.
    const FillParam fill = [](const Param& p, std::string& bytes, std::mt19937_64& random) {
      const bool targets = p.name == "t";
      for (size_t i = 0; i + 8 <= bytes.size() && targets; i += 8) {
        const auto target = static_cast<int64_t>(random() % 9);
        std::memcpy(bytes.data() + i, &target, 8);
      }
      for (size_t i = 0; i + 4 <= bytes.size() && !targets; i += 4) {
        const float v = static_cast<float>(random() % 2001) / 1000 - 1;
        std::memcpy(bytes.data() + i, &v, 4);
      }
    };
    EXPECT_EQ(Difference(before, with, Seed(), 1e-5, fill, &compared), "");
    EXPECT_EQ(compared, 1);
  }
}

}  // namespace
}  // namespace opwire

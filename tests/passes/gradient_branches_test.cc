// Gradients through branches, against central differences, and against gradients of the nodes of
// the taken branch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/passes/recompute.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/gradient_fixture.h"
#include "tests/passes/programs.h"

namespace opwire {
namespace {

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Returns nodes of a bool %name that no pass knows: %i is a parameter that is 0.
std::string Condition(const std::string& name, bool holds) {
  return fmt::format("%k.{0} = full() {{value = {1}.0, dtype = i64}} %{0} = lt(%i, %k.{0})", name,
                     static_cast<int>(holds));
}

int64_t Count(const Module& m, std::string_view op) {
  int64_t out = 0;
  for (const Function& f : m.functions) out += std::ranges::count(f.nodes, op, &Node::op);
  return out;
}

class BranchGradientTest : public GradientTest {
 protected:
  // For all values of $c and, if the text has it, $d.
  void CheckBranches(const std::string& text, double low = 0.3, double high = 1.2) {
    for (int k = 0; k < (text.find("$d") != std::string::npos ? 4 : 2); ++k) {
      Check(Written(text, k % 2 == 0, k < 2), low, high);
      if (HasFatalFailure()) return;
    }
  }
  static void ZeroOfConditions(const Param& p, std::string& bytes, std::mt19937_64&) {
    if (p.name == "i") std::ranges::fill(bytes, '\0');
  }
  static std::string Written(const std::string& text, bool c, bool d = true) {
    return Replaced(Replaced(text, "$c", Condition("c", c)), "$d", Condition("d", d));
  }
  static Module WithGradients(const std::string& text, const std::vector<std::string>& wrt) {
    auto m = Parse(text, "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    auto with = Gradient(*std::move(m), wrt);
    EXPECT_TRUE(with.ok()) << with.status();
    return *std::move(with);
  }
  // Compares gradients of both with respect to the float parameters, on equal inputs.
  void ExpectEqualGradients(const std::string& text, const std::string& expected_text,
                            double tolerance) {
    SCOPED_TRACE(text);
    ASSERT_OK_AND(Module m, Parse(text, "test.opw"));
    ASSERT_OK_AND(Module taken, Parse(expected_text, "taken.opw"));
    const std::vector<std::string> wrt = WantedOf(m);
    ASSERT_OK(RunPasses(taken, OnlyPasses({"inline"})).status());
    taken_ += Count(taken, "if") == 0;
    ASSERT_OK_AND(taken, Gradient(taken, wrt));
    ASSERT_OK_AND(m, Gradient(m, wrt));
    Values inputs;
    const auto expected = Run(taken, inputs, 0.3, 1.2), got = Run(m, inputs, 0.3, 1.2);
    Module optimised = m;
    ASSERT_OK(RunPasses(optimised).status());
    for (const auto& results : {got, Run(optimised, inputs, 0.3, 1.2)}) {
      ASSERT_EQ(results.size(), expected.size());
      for (const auto& [name, values] : expected) {
        ASSERT_EQ(results.at(name).size(), values.size()) << name;
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(results.at(name)[i], values[i],
                      tolerance * std::max(1.0, std::abs(values[i])))
              << name << "\n"
              << Print(m);
      }
    }
    branches_ += Count(m, "if");
  }

  int64_t branches_ = 0,
          taken_ = 0;  // compared branches, and programs without remaining branches: a branch stays
                       // if it would otherwise return an inout parameter after its end
};

// Integers and bools among the operands and the results, a result without readers, and operands
// that only one branch reads, or none.
TEST_F(BranchGradientTest, OfWhatEachIsGiven) {
  OPWIRE_TRACE_SEED();
  CheckBranches(
      R"(program @f(%x: f64[3], %w: f64[3], %v: f64[3], %u: f64[3], %i: i64[]) -> (loss: f64[]) {
                     $c
                     %t = tanh(%x)
                     %two = full() {value = 2.0, dtype = i64}
                     %y, %n, %b, %z, %o = if(%c, [%t, %w, %two, %c, %v, %u]) calls(@then, @otherwise) -> (f64[3], i64[], bool[], f64[], f64[3])
                     %f = cast(%n) {dtype = f64}
                     %a = mul(%y, %f)
                     %e = where(%b, %a, %w)
                     %m = mul(%e, %t)
                     %s = sum(%m)
                     %loss = mul(%s, %z)
                     return %loss }
                   function @then(%x: f64[3], %w: f64[3], %n: i64[], %b: bool[], %v: f64[3], %u: f64[3]) -> (y: f64[3], n: i64[], b: bool[], z: f64[], o: f64[3]) {
                     %0 = mul(%x, %w)
                     %1 = cumsum(%0) {dim = 0}
                     %2 = sin(%1)
                     %3 = sum(%2)
                     %4 = add(%n, %n)
                     %5 = exp(%2)
                     return %2, %4, %b, %3, %5 }
                   function @otherwise(%x: f64[3], %w: f64[3], %n: i64[], %b: bool[], %v: f64[3], %u: f64[3]) -> (y: f64[3], n: i64[], b: bool[], z: f64[], o: f64[3]) {
                     %0 = mul(%v, %x)
                     %1 = mean(%0)
                     %2 = bitwise_not(%b)
                     %3 = where(%2, %0, %v)
                     return %3, %n, %2, %1, %w })");
}

// An operand and a constant that a branch returns, one value as several operands and results, and
// one function for both branches.
TEST_F(BranchGradientTest, OfValuesThatAreHandedOn) {
  OPWIRE_TRACE_SEED();
  CheckBranches(R"(program @f(%x: f64[2], %w: f64[2], %i: i64[]) -> (loss: f64[]) {
                     $c
                     $d
                     %a, %b = if(%c, [%x, %w, %x]) calls(@swap, @first) -> (f64[2], f64[2])
                     %e, %g = if(%d, [%a, %b, %a]) calls(@same, @same) -> (f64[2], f64[2])
                     %h = mul(%e, %g)
                     %m = mul(%h, %b)
                     %loss = sum(%m)
                     return %loss }
                   function @swap(%p: f64[2], %q: f64[2], %r: f64[2]) -> (a: f64[2], b: f64[2]) { return %q, %p }
                   function @first(%p: f64[2], %q: f64[2], %r: f64[2]) -> (a: f64[2], b: f64[2]) { %0 = full() {shape = [2], value = 0.5, dtype = f64} return %r, %0 }
                   function @same(%p: f64[2], %q: f64[2], %r: f64[2]) -> (a: f64[2], b: f64[2]) { %0 = mul(%p, %q) %1 = sin(%0) %2 = mul(%1, %r) return %2, %2 })");
  const Module with = WithGradients(
      Written(
          R"(program @f(%x: f32[2], %i: i64[]) -> (loss: f32[]) { $c %y = if(%c, [%x]) calls(@same, @same) -> (f32[2]) %loss = sum(%y) return %loss }
                                               function @same(%x: f32[2]) -> (y: f32[2]) { %0 = sin(%x) return %0 })",
          true),
      {"x"});
  EXPECT_EQ(with.functions.size(), 3u) << "of one function there is one way back\n" << Print(with);
}

// The condition has no gradient, but its operands have.
TEST_F(BranchGradientTest, OfConditionsThatDependOnParameters) {
  OPWIRE_TRACE_SEED();
  for (int i = 0; i < 4; ++i) {
    Check(R"(program @f(%x: f64[2], %w: f64[]) -> (loss: f64[]) {
               %zero = zeros() {dtype = f64}
               %c = gt(%w, %zero)
               %y = if(%c, [%x, %w]) calls(@then, @otherwise) -> (f64[2])
               %loss = sum(%y)
               return %loss }
             function @then(%x: f64[2], %w: f64[]) -> (y: f64[2]) { %0 = mul(%x, %w) return %0 }
             function @otherwise(%x: f64[2], %w: f64[]) -> (y: f64[2]) { %0 = sin(%x) %1 = mul(%0, %w) %2 = mul(%1, %w) return %2 })",
          -2, 2);
    if (HasFatalFailure()) return;
  }
}

TEST_F(BranchGradientTest, OfBranchesInBranches) {
  OPWIRE_TRACE_SEED();
  CheckBranches(R"(program @f(%x: f64[2], %w: f64[2], %v: f64[2], %i: i64[]) -> (loss: f64[]) {
                     $c
                     $d
                     %y, %z = if(%c, [%d, %x, %w, %v]) calls(@then, @otherwise) -> (f64[2], f64[2])
                     %m = mul(%y, %z)
                     %loss = sum(%m)
                     return %loss }
                   function @then(%d: bool[], %x: f64[2], %w: f64[2], %v: f64[2]) -> (y: f64[2], z: f64[2]) {
                     %0 = mul(%x, %w)
                     %1, %2 = if(%d, [%0, %v, %d]) calls(@bend, @turn) -> (f64[2], f64[2])
                     %3 = mul(%1, %x)
                     %4 = if(%d, [%3, %2, %d]) calls(@one, @two) -> (f64[2])
                     return %4, %1 }
                   function @otherwise(%d: bool[], %x: f64[2], %w: f64[2], %v: f64[2]) -> (y: f64[2], z: f64[2]) {
                     %0, %1 = if(%d, [%x, %w, %d]) calls(@turn, @bend) -> (f64[2], f64[2])
                     return %1, %0 }
                   function @bend(%x: f64[2], %v: f64[2], %d: bool[]) -> (y: f64[2], z: f64[2]) { %0 = tanh(%x) %1 = mul(%0, %v) return %1, %x }
                   function @turn(%x: f64[2], %v: f64[2], %d: bool[]) -> (y: f64[2], z: f64[2]) {
                     %0 = if(%d, [%x, %v, %d]) calls(@one, @two) -> (f64[2])
                     %1 = sin(%0)
                     return %1, %v }
                   function @one(%x: f64[2], %v: f64[2], %d: bool[]) -> (y: f64[2]) { %0 = mul(%x, %v) %1 = exp(%0) return %1 }
                   function @two(%x: f64[2], %v: f64[2], %d: bool[]) -> (y: f64[2]) { %0 = cos(%v) return %0 })");
}

// A branch in a loop's body that differs between iterations, and a loop in a branch. The rows of
// that loop are kept if the branch is computed again.
TEST_F(BranchGradientTest, OfBranchesAndLoops) {
  OPWIRE_TRACE_SEED();
  CheckBranches(R"(program @f(%h: f64[2], %w: f64[2], %i: i64[]) -> (loss: f64[]) {
                     $c
                     $d
                     %n = full() {value = 4.0, dtype = i64}
                     %y, %k = repeat(%n, [%h, %i], [%w, %c, %d]) calls(@step)
                     %loss = sum(%y)
                     return %loss }
                   function @step(%iteration: i64[], inout %h: f64[2], %k: i64[], %w: f64[2], %c: bool[], %d: bool[]) -> (h: f64[2], k: i64[]) {
                     %one = full() {value = 1.0, dtype = i64}
                     %odd = bitwise_and(%iteration, %one)
                     %zero = zeros() {dtype = i64}
                     %0 = gt(%odd, %zero)
                     %1 = bitwise_xor(%0, %c)
                     %2, %3 = if(%1, [%h, %k, %w, %d]) calls(@loop, @plain) -> (f64[2], i64[])
                     %4 = mul(%2, %h)
                     return %4, %3 }
                   function @loop(%h: f64[2], %k: i64[], %w: f64[2], %d: bool[]) -> (h: f64[2], k: i64[]) {
                     %n = full() {value = 3.0, dtype = i64}
                     %0, %1 = repeat(%n, [%h, %k], [%w, %d]) calls(@inner)
                     %2 = add(%0, %h)
                     return %2, %1 }
                   function @inner(%iteration: i64[], %h: f64[2], %k: i64[], %w: f64[2], %d: bool[]) -> (h: f64[2], k: i64[]) {
                     %0 = if(%d, [%h, %w]) calls(@one, @two) -> (f64[2])
                     %1 = add(%k, %iteration)
                     %2 = cast(%1) {dtype = f64}
                     %3 = full() {value = 1.0, dtype = f64}
                     %4 = add(%2, %3)
                     %5 = div(%0, %4)
                     return %5, %1 }
                   function @plain(%h: f64[2], %k: i64[], %w: f64[2], %d: bool[]) -> (h: f64[2], k: i64[]) { %0 = sin(%h) return %0, %k }
                   function @one(%h: f64[2], %w: f64[2]) -> (y: f64[2]) { %0 = mul(%h, %w) %1 = tanh(%0) return %1 }
                   function @two(%h: f64[2], %w: f64[2]) -> (y: f64[2]) { return %h })");
}

// The branches' extents are their callers'; some extents may be 0.
TEST_F(BranchGradientTest, OfExtentsThatOnlyCallersBindAndOfNone) {
  OPWIRE_TRACE_SEED();
  CheckBranches(
      R"(program @f(%x: f64[?n, 2], %w: f64[2], %e: f64[0, 2], %i: i64[]) -> (loss: f64[]) {
                     $c
                     %twice = cat([%x, %x])
                     %y, %z = if(%c, [%twice, %w, %e]) calls(@then, @otherwise) -> (f64[?n+?n, 2], f64[0, 2])
                     %s = sum(%y)
                     %t = sum(%z)
                     %loss = add(%s, %t)
                     return %loss }
                   function @then(%x: f64[?n+?n, 2], %w: f64[2], %e: f64[0, 2]) -> (y: f64[?n+?n, 2], z: f64[0, 2]) { %0 = mul(%x, %w) %1 = tanh(%0) %2 = mul(%e, %w) return %1, %2 }
                   function @otherwise(%x: f64[?n+?n, 2], %w: f64[2], %e: f64[0, 2]) -> (y: f64[?n+?n, 2], z: f64[0, 2]) {
                     %0 = full() {shape = [?n+?n, 2], value = 0.5, dtype = f64}
                     %1 = add(%0, %w)
                     return %1, %e })");
}

// Only a part of a branch's results leads to the loss. The rest may come from ops that have no
// gradient. So may operands that no branch uses for that part.
TEST_F(BranchGradientTest, PassByWhatTheLossDoesNotDependOn) {
  OPWIRE_TRACE_SEED();
  CheckBranches(R"(program @f(%x: f64[2], %w: f64[2], %i: i64[]) -> (loss: f64[]) {
                     $c
                     %p = prod(%x)
                     %y, %z = if(%c, [%x, %w, %p]) calls(@then, @otherwise) -> (f64[2], f64[])
                     %loss = sum(%y)
                     return %loss }
                   function @then(%x: f64[2], %w: f64[2], %p: f64[]) -> (y: f64[2], z: f64[]) { %0 = mul(%x, %w) %1 = prod(%0) %2 = mul(%1, %p) return %0, %2 }
                   function @otherwise(%x: f64[2], %w: f64[2], %p: f64[]) -> (y: f64[2], z: f64[]) { %0 = sin(%x) return %0, %p })");
}

// Also an inout parameter that the program has replaced before the backward pass reads it.
TEST_F(BranchGradientTest, WhatWasReplacedIsKept) {
  OPWIRE_TRACE_SEED();
  CheckBranches(
      R"(program @f(%x: f64[3], inout %w: f64[3], inout %u: f64[3], %i: i64[]) -> (w: f64[3], u: f64[3], loss: f64[]) {
                     $c
                     %y = if(%c, [%x, %w, %u]) calls(@then, @otherwise) -> (f64[3])
                     %a = neg(%w)
                     %s = sin(%y)
                     %loss = sum(%s)
                     %b = add(%u, %s)
                     return %a, %b, %loss }
                   function @then(%x: f64[3], %w: f64[3], %u: f64[3]) -> (y: f64[3]) { %0 = mul(%x, %w) %1 = mul(%0, %u) return %1 }
                   function @otherwise(%x: f64[3], %w: f64[3], %u: f64[3]) -> (y: f64[3]) { %0 = add(%x, %w) %1 = mul(%0, %u) return %1 })");
}

// A branch that is computed again draws the same numbers.
TEST_F(BranchGradientTest, OfWhatIsDrawn) {
  OPWIRE_TRACE_SEED();
  CheckBranches(R"(program @f(%x: f64[40], %i: i64[]) -> (loss: f64[]) {
                     $c
                     %key = values() {value = [3, 4], dtype = u64}
                     %y = if(%c, [%x, %key]) calls(@drop, @noise) -> (f64[40])
                     %s = sin(%y)
                     %loss = sum(%s)
                     return %loss }
                   function @drop(%x: f64[40], %key: u64[2]) -> (y: f64[40]) { %p = full() {value = 0.5} %0 = dropout(%x, %p, %key) %1 = mul(%0, %0) return %1 }
                   function @noise(%x: f64[40], %key: u64[2]) -> (y: f64[40]) { 
                     %low = full() {value = -1.0, dtype = f64}
                     %high = full() {value = 1.0, dtype = f64}
                     %0 = uniform(%key, %low, %high) {shape = [40]}
                     %1 = mul(%x, %0)
                     %2 = mul(%1, %x)
                     return %2 })");
}

TEST_F(BranchGradientTest, OfGradients) {
  OPWIRE_TRACE_SEED();
  const std::string text = R"(program @f(%x: f64[3], %w: f64[3], %i: i64[]) -> (loss: f64[]) {
                                $c
                                %y = if(%c, [%x, %w]) calls(@then, @otherwise) -> (f64[3])
                                %s = sin(%y)
                                %loss = sum(%s)
                                return %loss }
                              function @then(%x: f64[3], %w: f64[3]) -> (y: f64[3]) { %0 = mul(%x, %w) %1 = tanh(%0) return %1 }
                              function @otherwise(%x: f64[3], %w: f64[3]) -> (y: f64[3]) { %0 = mul(%w, %x) %1 = mul(%0, %x) return %1 })";
  for (const bool c : {true, false}) {
    const std::string once = Print(WithGradients(Written(text, c), {"x", "w"}));
    // The loss is now a function of the gradients.
    const size_t from = once.find("  return "), to = once.find('\n', from);
    const std::string values = once.substr(from + 9, to - from - 9),
                      gradients = values.substr(values.find(", ") + 2);
    std::string twice =
        once.substr(0, from) +
        fmt::format("  %m = mul({}) %e = exp(%m) %loss = sum(%e)\n  return %loss", gradients) +
        once.substr(to);
    Check(Replaced(twice, ", grad.x: f64[3], grad.w: f64[3]) {", ") {"), 0.3, 1.2);
    if (HasFatalFailure()) return;
  }
}

// Gradients are summed in their own type, and encoded operands are passed again.
TEST_F(BranchGradientTest, OtherTypesKeepTheirs) {
  const Module with = WithGradients(
      Written(
          R"(program @f(%x: bf16[32], %w: f32[32], %q: i8:q8_0[2, 32], %i: i64[]) -> (loss: f32[]) {
                                                 $c
                                                 %y = if(%c, [%x, %w, %q]) calls(@then, @otherwise) -> (f32[32])
                                                 %loss = sum(%y)
                                                 return %loss }
                                               function @then(%x: bf16[32], %w: f32[32], %q: i8:q8_0[2, 32]) -> (y: f32[32]) {
                                                 %i = zeros() {dtype = i64}
                                                 %e = quantized_embedding(%q, %i)
                                                 %0 = cast(%x) {dtype = f32}
                                                 %1 = mul(%0, %e)
                                                 return %1 }
                                               function @otherwise(%x: bf16[32], %w: f32[32], %q: i8:q8_0[2, 32]) -> (y: f32[32]) { return %w })",
          true),
      {"x", "w"});
  const ValueTypes values(with.functions[0]);
  const auto type = [&](size_t result) {
    return ToString(*values.types[static_cast<size_t>(with.functions[0].results[result].value)],
                    with.dims);
  };
  EXPECT_EQ(type(1), "bf16[32]");
  EXPECT_EQ(type(2), "f32[32]");
}

// The recomputation of a branch does not emit again.
TEST_F(BranchGradientTest, EmitOnce) {
  const std::string text = R"(program @f(%x: f64[2], %i: i64[]) -> (loss: f64[]) {
                                $c
                                $d
                                %y = if(%c, [%x, %d]) calls(@then, @otherwise) -> (f64[2])
                                %loss = sum(%y)
                                return %loss }
                              function @then(%x: f64[2], %d: bool[]) -> (y: f64[2]) {
                                %0 = sin(%x)
                                emit(%0) {name = "then"}
                                %n = full() {value = 2.0, dtype = i64}
                                %1 = repeat(%n, [%0], [%d]) calls(@step)
                                return %1 }
                              function @otherwise(%x: f64[2], %d: bool[]) -> (y: f64[2]) { %0 = if(%d, [%x]) calls(@tell, @pass) -> (f64[2]) return %0 }
                              function @step(%iteration: i64[], %x: f64[2], %d: bool[]) -> (x: f64[2]) { %0 = if(%d, [%x]) calls(@tell, @pass) -> (f64[2]) return %0 }
                              function @tell(%x: f64[2]) -> (x: f64[2]) { %0 = mul(%x, %x) emit(%0) {name = "told"} %1 = exp(%0) return %1 }
                              function @pass(%x: f64[2]) -> (x: f64[2]) { %0 = cos(%x) return %0 })";
  const auto parts = [&](const Module& m) {
    Values inputs;
    Run(m, inputs, 0.3, 1.2);
    return std::ranges::count_if(shell_.sent, [](const FakeShell::Message& sent) {
      AlignedBytes memory;
      return !DecodeReply(AsBytes(sent.head), memory).value()->last();
    });
  };
  for (const bool c : {true, false}) {
    for (const bool d : {true, false}) {
      const int64_t expected = c ? 1 + (d ? 2 : 0) : d;
      ASSERT_OK_AND(const Module before, Parse(Written(text, c, d), "test.opw"));
      EXPECT_EQ(parts(before), expected);
      EXPECT_EQ(parts(WithGradients(Written(text, c, d), {"x"})), expected);
    }
  }
}

// Marked values before, in and after branches are computed again in the backward pass. Marks after
// a branch that cannot be computed again do not change it.
TEST_F(BranchGradientTest, OfWhatIsMarked) {
  OPWIRE_TRACE_SEED();
  const std::string text = R"(program @f(%x: f64[64], %w: f64[64], %i: i64[]) -> (loss: f64[]) {
                                $c
                                %0 = mul(%x, %w)
                                %1 = expm1(%0)
                                %2 = MARK(%1)
                                %3 = sin(%2)
                                %4 = if(%c, [%3, %w]) calls(@then, @otherwise) -> (f64[64])
                                %5 = MARK(%4)
                                %6 = tanh(%5)
                                %7 = mul(%6, %3)
                                %8 = cos(%7)
                                %loss = sum(%8)
                                return %loss }
                              function @then(%x: f64[64], %w: f64[64]) -> (y: f64[64]) {
                                %0 = mul(%x, %w)
                                %1 = gelu(%0)
                                %2 = MARK(%1)
                                %3 = sin(%2)
                                %4 = mul(%3, %w)
                                %5 = cos(%4)
                                return %5 }
                              function @otherwise(%x: f64[64], %w: f64[64]) -> (y: f64[64]) { %0 = sin(%x) %1 = MARK(%0) %2 = mul(%1, %w) return %2 })";
  const std::vector<std::string> wrt = {"x", "w"};
  CheckBranches(Replaced(text, "MARK", "recompute"));
  for (const bool c : {true, false}) {
    const Module marked = WithGradients(Replaced(Written(text, c), "MARK", "recompute"), wrt),
                 plain = WithGradients(Replaced(Written(text, c), "MARK", "copy"), wrt);
    EXPECT_EQ(Count(marked, "expm1"), 2) << Print(marked);
    EXPECT_EQ(Count(plain, "expm1"), 1) << Print(plain);
    EXPECT_EQ(Count(marked, "gelu"), 3) << "one in the branch, two where it is computed again\n"
                                        << Print(marked);
    EXPECT_EQ(Count(plain, "gelu"), 2) << Print(plain);
    EXPECT_EQ(Difference(plain, marked, Seed(), 0, ZeroOfConditions), "");
  }
}

// Memory budgets that require recomputation of nodes before, after and in branches.
TEST_F(BranchGradientTest, WithLessMemory) {
  OPWIRE_TRACE_SEED();
  const auto layers = [](const std::string& from, const std::string& to) {
    std::string out, last = from;
    for (int i = 0; i < 6; ++i) {
      out +=
          fmt::format("%{0}{1} = mul(%{2}, %w) %{0}g{1} = gelu(%{0}{1}) %{0}s{1} = sin(%{0}g{1})\n",
                      to, i, last);
      last = fmt::format("{}s{}", to, i);
    }
    return out;
  };
  const std::string text =
      fmt::format(R"(program @f(%x: f64[64], %w: f64[64], %i: i64[]) -> (loss: f64[]) {{
                                            $c
                                            {}
                                            %y = if(%c, [%as5, %w]) calls(@then, @otherwise) -> (f64[64])
                                            {}
                                            %loss = sum(%bs5)
                                            return %loss }}
                                          function @then(%x: f64[64], %w: f64[64]) -> (y: f64[64]) {{ {} return %ts5 }}
                                          function @otherwise(%x: f64[64], %w: f64[64]) -> (y: f64[64]) {{ {} return %os5 }})",
                  layers("x", "a"), layers("y", "b"), layers("x", "t"), layers("x", "o"));
  for (const bool c : {true, false}) {
    Module before = WithGradients(Written(text, c), {"x", "w"});
    ASSERT_OK(RunPasses(before).status());
    ASSERT_OK_AND(const RecomputeReport whole, Recompute(before, {.memory_bytes = INT64_MAX}));
    for (const int percent : {80, 60}) {
      Module less = before;
      ASSERT_OK_AND(const RecomputeReport report,
                    Recompute(less, {.memory_bytes = whole.before_bytes * percent / 100}));
      EXPECT_GT(report.nodes, 0);
      EXPECT_EQ(Difference(before, less, Seed(), 0, ZeroOfConditions), "");
    }
  }
}

// Programs of random nodes, with nested branches and loops, whose operands and results are random
// values.
class RandomBranches {
 public:
  explicit RandomBranches(std::mt19937_64& random) : random_(random) {
    std::vector<std::string> values;
    std::string params = Params(1 + Below(3), "p", values), results = "loss: f64[]", returned;
    std::string nodes = std::string(kNumbers);
    if (Below(3) == 0) {
      params += ", inout %s: f64[2]";
      results = "s: f64[2], " + results;
      returned = "%new, ";
      values.emplace_back("%s");
      nodes += Nodes(values, 0) + fmt::format("%new = sub(%s, {})\n", Pick(values));
      std::erase(values, "%s");
    }
    nodes += Nodes(values, 0) + "%t0 = full() {value = 0.0, dtype = f64}\n";
    const size_t summed = 1 + Below(4);
    for (size_t k = 0; k < summed; ++k)
      nodes += fmt::format("%c{1} = cos({0}) %u{1} = sum(%c{1}) %t{2} = add(%t{1}, %u{1})\n",
                           Pick(values), k, k + 1);
    text_ = fmt::format("program @f({}, %i: i64[]) -> ({}) {{\n{}return {}%t{} }}\n", params,
                        results, nodes, returned, summed) +
            text_;
  }

  // `known`: conditions are constants, so that the pass `inline` leaves no branches. Otherwise no
  // pass knows them.
  std::string Text(bool known) const {
    std::string out = text_;
    for (int holds = 0; holds < 2; ++holds)
      out = Replaced(out, fmt::format("${}", holds),
                     known ? fmt::format("full() {{value = {}.0, dtype = bool}}", holds)
                           : fmt::format("lt(%i, %is{})", holds));
    return out;
  }

 private:
  static constexpr std::string_view kNumbers =
      "%is0 = full() {value = 0.0, dtype = i64} %is1 = full() {value = 1.0, dtype = i64}\n";

  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  const std::string& Pick(const std::vector<std::string>& of) { return of[Below(of.size())]; }
  std::string Picks(const std::vector<std::string>& of, size_t count) {
    std::vector<std::string> out;
    for (size_t i = 0; i < count; ++i) out.push_back(Pick(of));
    return fmt::format("{}", fmt::join(out, ", "));
  }
  static std::string Params(size_t count, const std::string& name,
                            std::vector<std::string>& values) {
    std::vector<std::string> out;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(fmt::format("%{}{}", name, i));
      out.push_back(values.back() + ": f64[2]");
    }
    return fmt::format("{}", fmt::join(out, ", "));
  }

  // Appends a function that takes `first`, these parameters, then %i. Returns its name.
  std::string Function(const std::string& first, size_t params, size_t results, int depth) {
    const std::string name = fmt::format("@g{}", functions_++);
    std::vector<std::string> values;
    const std::string takes = Params(params, "p", values), nodes = Nodes(values, depth);
    std::vector<std::string> gives;
    for (size_t r = 0; r < results; ++r) gives.push_back(fmt::format("r{}: f64[2]", r));
    text_ += fmt::format("function {}({}{}, %i: i64[]) -> ({}) {{\n{}{}return {} }}\n", name, first,
                         takes, fmt::join(gives, ", "), kNumbers, nodes, Picks(values, results));
    return name;
  }

  // Writes random nodes. Their results join the values.
  std::string Nodes(std::vector<std::string>& values, int depth) {
    std::string out;
    for (size_t k = Below(6); k > 0; --k) {
      const std::string name = fmt::format("%v{}", values_++);
      const size_t kind = Below(depth < 3 ? 9 : 5);
      if (kind < 5) {
        if (kind == 0)
          out += fmt::format("{} = full() {{shape = [2], value = 0.75, dtype = f64}}\n", name);
        if (kind == 1)
          out += fmt::format("emit({}) {{name = \"e\"}}\n{} = cos({})\n", Pick(values), name,
                             Pick(values));
        if (kind == 2)
          out += fmt::format("{} = {}({})\n", name, Below(2) == 0 ? "sin" : "tanh", Pick(values));
        if (kind > 2)
          out += fmt::format("{} = {}({})\n", name, kind == 3 ? "mul" : "sub", Picks(values, 2));
        values.push_back(name);
        continue;
      }
      const size_t results = 1 + Below(2), inputs = 1 + Below(3);
      std::vector<std::string> made;
      for (size_t r = 0; r < results; ++r) made.push_back(fmt::format("{}.{}", name, r));
      if (kind == 5) {
        const std::string body =
            Function("%iteration: i64[], ", results + inputs, results, depth + 1);
        out += fmt::format(
            "{0}.n = full() {{value = {1}.0, dtype = i64}}\n{2} = repeat({0}.n, [{3}], [{4}, %i]) "
            "calls({5})\n",
            name, Below(4), fmt::join(made, ", "), Picks(values, results), Picks(values, inputs),
            body);
      } else {
        const std::string then = Function("", inputs, results, depth + 1),
                          otherwise =
                              Below(4) == 0 ? then : Function("", inputs, results, depth + 1);
        out += fmt::format("{0}.c = ${1}\n{2} = if({0}.c, [{3}, %i]) calls({4}, {5}) -> ({6})\n",
                           name, Below(2), fmt::join(made, ", "), Picks(values, inputs), then,
                           otherwise, results == 1 ? "f64[2]" : "f64[2], f64[2]");
      }
      values.insert(values.end(), made.begin(), made.end());
    }
    return out;
  }

  std::mt19937_64& random_;
  std::string text_;  // functions; the program precedes them at the end
  int functions_ = 0, values_ = 0;
};

TEST_F(BranchGradientTest, OfRandomPrograms) {
  OPWIRE_TRACE_SEED();
  const auto programs = static_cast<int>(ProgramCount(200));
  for (int i = 0; i < programs; ++i) {
    const RandomBranches program(random_);
    ExpectEqualGradients(program.Text(false), program.Text(true), 1e-10);
    if (HasFatalFailure()) return;
  }
  std::cout << branches_ << " branches, " << taken_ << " programs without any compared\n";
  EXPECT_GT(branches_, programs);
  EXPECT_GT(taken_, programs / 2);
}

TEST(Gradient, ErrorsOfBranches) {
  const auto error = [](const std::string& then) {
    auto m = Parse(
        fmt::format(
            "program @f(%x: f32[2], %n: i64[], %c: bool[]) -> (loss: f32[]) {{ %y = if(%c, [%x, "
            "%n]) calls(@then, @otherwise) -> (f32[2]) %loss = sum(%y) return %loss }}\n"
            "function @then(%x: f32[2], %n: i64[]) -> (y: f32[2]) {{ {} }}\n"
            "function @otherwise(%x: f32[2], %n: i64[]) -> (y: f32[2]) {{ %0 = sin(%x) return %0 "
            "}}\n"
            "function @step(%iteration: i64[], %x: f32[2]) -> (x: f32[2]) {{ %0 = sin(%x) return "
            "%0 }}\n"
            "function @asks(%x: f32[2]) -> (c: bool[]) {{ %0 = full() {{value = 0.0, dtype = "
            "bool}} return %0 }}\n"
            "function @body(%x: f32[2]) -> (x: f32[2]) {{ %0 = sin(%x) return %0 }}\n",
            then),
        "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    return Gradient(*std::move(m), std::vector<std::string>{"x"}).status().ToString();
  };
  EXPECT_EQ(
      error("%0 = sin(%x) emit(%0) {name = \"a\"} %1, %m = l2_norm([%0]) loc(\"model.py:7\") %2 = "
            "add(%x, %1) return %2"),
      "UNIMPLEMENTED: gradient: there is none of l2_norm (node %1 of \"then\", model.py:7) by its "
      "norm");
  EXPECT_EQ(error("%0 = while([%x], []) calls(@asks, @body) {max_trips = 3} return %0"),
            "UNIMPLEMENTED: gradient: there is none of while (node %0 of \"then\")");
  EXPECT_EQ(
      error("%0 = neg(%x) %1 = repeat(%n, [%0], []) calls(@step) return %1"),
      "UNIMPLEMENTED: gradient: expected a constant number of iterations, got one that only a run "
      "knows, for repeat (node %1 of \"then\")");
}

}  // namespace
}  // namespace opwire

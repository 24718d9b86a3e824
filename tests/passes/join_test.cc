// Optimiser steps that become one: which steps join, which stay, and that the meaning is the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/outcome.h"
#include "tests/passes/programs.h"
#include "tests/seed.h"

namespace opwire {
namespace {

std::string StepsJoined(const std::string& text) {
  Module m = Parsed(text);
  const auto report = RunPasses(m, OnlyPasses({"join"}));
  EXPECT_TRUE(report.ok()) << report.status();
  return Print(m);
}
void JoinTo(const std::string& from, const std::string& to) {
  EXPECT_EQ(StepsJoined(from), Print(Parsed(to)));
}
void StayApart(const std::string& text) { JoinTo(text, text); }

TEST(Join, StepsOfManyWeightsAreOne) {
  JoinTo(
      R"(program @f(inout %a: f32[4], inout %b: f32[?n, 3], inout %c: f32[5], %ga: f32[4], %gb: f32[?n, 3], %gc: f32[5], inout %ma: f32[4], inout %mb: f32[?n, 3], %lr: f32[], %step: i64[])
                 -> (a: f32[4], b: f32[?n, 3], c: f32[5], ma: f32[4], mb: f32[?n, 3]) {
               %0, %1 = sgd([%a], [%ga], [%ma], %lr, %step) {momentum = 0.9}
               %2 = sgd([%c], [%gc], [], %lr, %step)
               %3, %4 = sgd([%b], [%gb], [%mb], %lr, %step) {momentum = 0.9}
               return %0, %3, %2, %1, %4 })",
      R"(program @f(inout %a: f32[4], inout %b: f32[?n, 3], inout %c: f32[5], %ga: f32[4], %gb: f32[?n, 3], %gc: f32[5], inout %ma: f32[4], inout %mb: f32[?n, 3], %lr: f32[], %step: i64[])
                 -> (a: f32[4], b: f32[?n, 3], c: f32[5], ma: f32[4], mb: f32[?n, 3]) {
               %0 = sgd([%c], [%gc], [], %lr, %step)
               %1, %2, %3, %4 = sgd([%a, %b], [%ga, %gb], [%ma, %mb], %lr, %step) {momentum = 0.9}
               return %1, %2, %0, %3, %4 })");
}

TEST(Join, WhatReadsAResultRunsBehindAllOfThem) {
  JoinTo(
      R"(program @f(inout %a: f32[4], inout %b: f32[3], %g: f32[4], %h: f32[3], %lr: f32[], %step: i64[]) -> (a: f32[4], b: f32[3], c: bf16[4], d: bf16[3]) {
               %0 = sgd([%a], [%g], [], %lr, %step)
               %1 = cast(%0) {dtype = bf16}
               %2 = sgd([%b], [%h], [], %lr, %step)
               %3 = cast(%2) {dtype = bf16}
               return %0, %2, %1, %3 })",
      R"(program @f(inout %a: f32[4], inout %b: f32[3], %g: f32[4], %h: f32[3], %lr: f32[], %step: i64[]) -> (a: f32[4], b: f32[3], c: bf16[4], d: bf16[3]) {
               %0, %1 = sgd([%a, %b], [%g, %h], [], %lr, %step)
               %2 = cast(%0) {dtype = bf16}
               %3 = cast(%1) {dtype = bf16}
               return %0, %1, %2, %3 })");
}

// Returns a program of two steps of sgd over %a and %b. The second one is written out.
std::string TwoSteps(const std::string& second,
                     const std::string& first = "sgd([%a], [%g], [], %lr, %step)",
                     const std::string& between = "") {
  return fmt::format(
      R"(program @f(inout %a: f32[4], inout %b: f32[4], %g: f32[4], %h: bf16[4], %lr: f32[], %other: f32[], %step: i64[]) -> (a: f32[4], b: f32[4]) {{
               %0 = {}{}
               %1 = {}
               return %0, %1 }})",
      first, between, second);
}

TEST(Join, WhatDiffersStays) {
  EXPECT_NE(StepsJoined(TwoSteps("sgd([%b], [%g], [], %lr, %step)")),
            Print(Parsed(TwoSteps("sgd([%b], [%g], [], %lr, %step)"))));
  for (const char* const second : {"sgd([%b], [%g], [], %other, %step)",
                                   "sgd([%b], [%g], [], %lr, %step) {weight_decay = 0.1}",
                                   "sgd([%b], [%g], [], %lr, %step) {maximize = true}",
                                   "sgd@reference([%b], [%g], [], %lr, %step)"}) {
    StayApart(TwoSteps(second));
  }
  StayApart(TwoSteps("sgd@reference([%b], [%g], [], %lr, %step)",
                     "sgd@reference([%a], [%g], [], %lr, %step)"));
  StayApart(
      R"(program @f(inout %a: f32[4], inout %b: bf16[4], %g: f32[4], %h: bf16[4], %lr: f32[], %step: i64[]) -> (a: f32[4], b: bf16[4]) {
             %0 = sgd([%a], [%g], [], %lr, %step)
             %1 = sgd([%b], [%h], [], %lr, %step)
             return %0, %1 })");
}

TEST(Join, NoPathLeadsFromOneToAnother) {
  StayApart(TwoSteps("sgd([%b], [%0], [], %lr, %step)"));  // a value
  StayApart(
      TwoSteps("sgd([%b], [%g], [], %lr, %step)",
               "sgd([%a], [%b], [], %lr, %step)"));  // the old value is read before it is replaced
  StayApart(
      R"(program @f(inout %a: f32[4], inout %b: f32[4], %g: f32[4], %lr: f32[], %step: i64[]) -> (a: f32[4], b: f32[4], c: f32[4]) {
             %0 = sgd([%a], [%g], [], %lr, %step)
             %1 = add(%0, %b)
             %2 = sgd([%b], [%g], [], %lr, %step)
             return %0, %2, %1 })");  // both
  // The pairs depend on each other through steps of another kind, so only one pair can join.
  const std::string crossed = StepsJoined(
      R"(program @f(inout %a: f32[4], inout %b: f32[4], inout %c: f32[4], inout %d: f32[4], %g: f32[4], %lr: f32[], %step: i64[])
                 -> (a: f32[4], b: f32[4], c: f32[4], d: f32[4]) {
               %0 = sgd([%a], [%g], [], %lr, %step)
               %1 = sgd([%c], [%g], [], %lr, %step) {maximize = true}
               %2 = sgd([%b], [%1], [], %lr, %step)
               %3 = sgd([%d], [%0], [], %lr, %step) {maximize = true}
               return %0, %2, %1, %3 })");
  EXPECT_EQ(std::ranges::count(crossed, '='), 6) << crossed;  // four nodes, and two attributes
}

TEST(Join, NothingIsKeptLonger) {
  const auto between = [](const std::string& made) {
    return fmt::format(
        R"(program @f(inout %a: f32[4], inout %b: f32[4], %g: f32[4, 4], %lr: f32[], %step: i64[]) -> (a: f32[4], b: f32[4], s: f32[]) {{
               %0 = sum(%g) {{dims = [0]}}
               %1 = {}
               %2 = sgd([%a], [%0], [], %lr, %step)
               %3 = sum(%g) {{dims = [1]}}
               %4 = sgd([%b], [%3], [], %lr, %step)
               return %2, %4, %1 }})",
        made);
  };
  StayApart(between("sum(%g)"));  // %0 would exist at the same time as %3
}

TEST(Join, TakesTimeByTheNumberOfNodes) {
  std::string params, results, nodes, values;
  constexpr int kWeights = 20'000;
  for (int i = 0; i < kWeights; ++i) {
    params += fmt::format("inout %w{}: f32[2], ", i);
    results += fmt::format("{}w{}: f32[2]", i ? ", " : "", i);
    nodes += fmt::format("%n{0} = sgd([%w{0}], [%g], [], %lr, %step) {{weight_decay = {1}.5}}\n", i,
                         i % 2 == 0 ? 0 : i);
    values += fmt::format("{}%n{}", i ? ", " : "", i);
  }
  Module m = Parsed(
      fmt::format("program @f({}%g: f32[2], %lr: f32[], %step: i64[]) -> ({}) {{ {} return {} }}",
                  params, results, nodes, values));
  ASSERT_OK(RunPasses(m, OnlyPasses({"join"})).status());
  EXPECT_EQ(m.functions[0].nodes.size(), size_t{kWeights} / 2 + 1);
}

class JoinedPrograms : public OutcomeTest {
 protected:
  // Steps over weights that may read each other's old and new values, and other nodes between them.
  static std::string RandomSteps(std::mt19937_64& random) {
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const size_t weights = 2 + below(8);
    std::string params, results, nodes, values;
    std::vector<std::vector<std::string>> of_shape(2);  // values that may be read, by shape
    std::vector<std::string> old;                       // by weight; empty if it is replaced
    int value = 0;
    const auto shape = [](size_t w) { return w % 2; };
    const auto type = [&](size_t s) { return s == 0 ? "f32[5]" : "f32[3, 2]"; };
    for (size_t w = 0; w < weights; ++w) {
      params += fmt::format("inout %w{}: {}, ", w, type(shape(w)));
      old.push_back(fmt::format("%w{}", w));
    }
    for (size_t s = 0; s < 2; ++s) {
      params += fmt::format("%g{}: {}, ", s, type(s));
      of_shape[s].push_back(fmt::format("%g{}", s));
    }
    const auto any = [&](size_t s) -> std::string {
      const size_t w = below(weights);
      if (below(4) == 0 && shape(w) == s && !old[w].empty()) return old[w];
      return of_shape[s][below(3) == 0 ? below(of_shape[s].size()) : 0];
    };
    std::vector<size_t> order(weights);
    for (size_t w = 0; w < weights; ++w) order[w] = w;
    std::ranges::shuffle(order, random);
    std::vector<std::string> by_weight(weights);
    for (size_t at = 0; at < weights; ++at) {
      const size_t w = order[at], s = shape(w);
      const bool lion = below(4) == 0;
      const int first = value;
      nodes += fmt::format("%{}, %{} = {}([%w{}], [{}], [{}], %lr{}{}) {{{}}}\n", first, first + 1,
                           lion ? "lion" : "sgd", w, any(s), any(s), below(5) == 0 ? 1 : 0,
                           lion ? "" : ", %step", lion ? "beta1 = 0.5" : "momentum = 0.5");
      by_weight[w] = fmt::format("%{}", first);
      results += fmt::format(", m{}: {}", w, type(s));
      values += fmt::format(", %{}", first + 1);
      old[w].clear();
      of_shape[s].push_back(fmt::format("%{}", first));
      of_shape[s].push_back(fmt::format("%{}", first + 1));
      value += 2;
      if (below(3) != 0) continue;
      nodes += fmt::format("%{} = add({}, {})\n", value, any(s), of_shape[s].back());
      results += fmt::format(", s{}: {}", w, type(s));
      values += fmt::format(", %{}", value++);
    }
    std::string replaced, replacing;
    for (size_t w = 0; w < weights; ++w) {
      replaced += fmt::format("{}w{}: {}", w ? ", " : "", w, type(shape(w)));
      replacing += fmt::format("{}{}", w ? ", " : "", by_weight[w]);
    }
    return fmt::format(
        "program @f({}%lr0: f32[], %lr1: f32[], %step: i64[]) -> ({}{}) {{\n{}return {}{} }}",
        params, replaced, results, nodes, replacing, values);
  }
};

TEST_F(JoinedPrograms, MeanTheSame) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  int joined = 0, compared = 0;
  constexpr int kPrograms = 200;
  for (int i = 0; i < kPrograms; ++i) {
    const std::string text = RandomSteps(random);
    const Module before = Parsed(text);
    Module after = before;
    ASSERT_OK(RunPasses(after, OnlyPasses({"join"})).status());
    joined += after.functions[0].nodes.size() < before.functions[0].nodes.size();
    ASSERT_EQ(Difference(before, after, random(), 0, nullptr, &compared), "") << text << "\n"
                                                                              << Print(after);
  }
  EXPECT_GT(joined, kPrograms / 2);
  EXPECT_GT(compared, kPrograms / 2);
}

}  // namespace
}  // namespace opwire

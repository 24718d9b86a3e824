// Gradients through loops, against central differences, and against gradients of the same steps
// written out.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/gradient_fixture.h"

namespace opwire {
namespace {

// A program that repeats a step, as a loop or written out.
struct Stepped {
  struct Carried {
    std::string name, type, begin, next;  // `next`: as in `step`
    std::string mode = "";
  };
  std::string params;  // of the program
  std::string before;  // nodes
  std::vector<Carried> carried;
  std::vector<std::pair<std::string, std::string>>
      inputs;         // of the step, by name and type, from values of those names
  std::string step;   // nodes: $name is a carried value, an input, or the number of the iteration;
                      // # ends the names of other values
  std::string after;  // nodes, the last of them %loss: $name is a carried value
  std::string functions = "";  // that the step calls

  using Names = std::map<std::string, std::string>;
  static std::string Written(const std::string& text, const Names& names,
                             const std::string& suffix) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '#') {
        out += suffix;
      } else if (text[i] == '$') {
        size_t end = i + 1;
        while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
        out += "%" + names.at(text.substr(i + 1, end - i - 1));
        i = end - 1;
      } else {
        out += text[i];
      }
    }
    return out;
  }
  std::string WrittenOut(int iterations) const {
    std::string out = fmt::format("program @f({}) -> (loss: f64[]) {{\n{}\n", params, before);
    Names names;
    for (const auto& [name, type] : inputs) names[name] = name;
    for (const Carried& c : carried) names[c.name] = c.begin;
    for (int t = 0; t < iterations; ++t) {
      names["iteration"] = fmt::format("iteration_{}", t);
      out += fmt::format("%iteration_{} = full() {{value = {}.0, dtype = i64}}\n{}\n", t, t,
                         Written(step, names, fmt::format("_{}", t)));
      Names next = names;
      for (const Carried& c : carried)
        next[c.name] = Written(c.next, names, fmt::format("_{}", t)).substr(1);
      names = next;
    }
    return out + Written(after, names, "") + "\nreturn %loss }\n" + functions;
  }
  std::string AsLoop(int iterations) const {
    std::string from, to, takes = "%iteration: i64[]", given, types, next;
    Names names = {{"iteration", "iteration"}}, ends;
    const auto add = [](std::string& list, const std::string& item) {
      list += (list.empty() ? "" : ", ") + item;
    };
    for (const Carried& c : carried) {
      names[c.name] = c.name;
      ends[c.name] = "end_" + c.name;
      add(from, "%" + c.begin);
      add(to, "%end_" + c.name);
      add(takes, fmt::format("{}%{}: {}", c.mode, c.name, c.type));
      add(types, c.name + ": " + c.type);
    }
    for (const auto& [name, type] : inputs) {
      names[name] = name;
      add(given, "%" + name);
      add(takes, fmt::format("%{}: {}", name, type));
    }
    for (const Carried& c : carried) add(next, Written(c.next, names, ""));
    return fmt::format(
        "program @f({}) -> (loss: f64[]) {{\n{}\n%iterations = full() {{value = {}.0, dtype = "
        "i64}}\n{} "
        "= repeat(%iterations, [{}], [{}]) calls(@step)\n{}\nreturn %loss }}\n"
        "function @step({}) -> ({}) {{\n{}\nreturn {} }}\n{}",
        params, before, iterations, to, from, given, Written(after, ends, ""), takes, types,
        Written(step, names, ""), next, functions);
  }
};

class LoopGradientTest : public GradientTest {
 protected:
  // Checks that the loop's gradients equal central differences, and those of the steps written out.
  void CheckLoop(const Stepped& program, const std::vector<int>& all_iterations = {0, 1, 5}) {
    for (const int iterations : all_iterations) {
      Check(program.AsLoop(iterations), 0.3, 1.2);
      if (!HasFatalFailure()) CheckWrittenOut(program, iterations, 1e-13);
      if (HasFatalFailure()) return;
    }
  }
  void CheckWrittenOut(const Stepped& program, int iterations, double tolerance) {
    const std::string loop = program.AsLoop(iterations), out = program.WrittenOut(iterations);
    SCOPED_TRACE(loop);
    ASSERT_OK_AND(Module looped, Parse(loop, "loop.opw"));
    ASSERT_OK_AND(Module written, Parse(out, "out.opw"));
    std::vector<std::string> wrt;
    for (const Param& p : looped.functions[0].params) {
      if (p.type.dtype == DType::kF64) wrt.push_back(p.name);
    }
    ASSERT_OK_AND(looped, Gradient(looped, wrt));
    ASSERT_OK_AND(written, Gradient(written, wrt));
    Values inputs;
    const auto got = Run(looped, inputs, 0.3, 1.2), expected = Run(written, inputs, 0.3, 1.2);
    ASSERT_EQ(got.size(), wrt.size() + 1);
    for (const auto& [name, values] : expected) {
      ASSERT_EQ(got.at(name).size(), values.size()) << name;
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], tolerance * std::max(1.0, std::abs(values[i])))
            << name << "\n"
            << Print(looped);
    }
  }
  static Module WithGradients(const std::string& text, const std::vector<std::string>& wrt) {
    auto m = Parse(text, "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    auto with = Gradient(*std::move(m), wrt);
    EXPECT_TRUE(with.ok()) << with.status();
    return *std::move(with);
  }
};

// Inputs that each iteration reads, integers and bools in addition to floats, a sum over the
// iterations, and a weight that is also read elsewhere.
TEST_F(LoopGradientTest, OfARecurrence) {
  OPWIRE_TRACE_SEED();
  Stepped program{.params = "%h: f64[3], %w: f64[3], %xs: f64[5, 3]",
                  .before =
                      "%two = full() {value = 2.0, dtype = i64} %zero = zeros() {dtype = f64} %yes "
                      "= full() {value = 1.0, dtype = bool}",
                  .carried = {{"c", "i64[]", "two", "%c2#"},
                              {"h", "f64[3]", "h", "%y#"},
                              {"g", "f64[]", "zero", "%g2#"},
                              {"b", "bool[]", "yes", "%b2#"}},
                  .inputs = {{"w", "f64[3]"}, {"xs", "f64[5, 3]"}},
                  .step = R"(%s# = slice($xs, $iteration) {length = 1}
                             %x# = reshape(%s#) {shape = [3]}
                             %m# = mul($h, $w)
                             %k# = cumsum(%m#) {dim = 0}
                             %a# = add(%k#, %x#)
                             %t# = tanh(%a#)
                             %f# = cast($c) {dtype = f64}
                             %u# = div(%t#, %f#)
                             %y# = where($b, %u#, %t#)
                             %q# = mul(%y#, %y#)
                             %d# = sum(%q#)
                             %g2# = add($g, %d#)
                             %c2# = add($c, $iteration)
                             %b2# = bitwise_not($b))",
                  .after = "%ws = mul(%w, $h) %sum = sum(%ws) %loss = add(%sum, $g)"};
  CheckLoop(program);
  program.carried[1].mode = "inout ";
  CheckLoop(program, {2});
}

// Values that change places, a value that a constant replaces, and a value without readers.
TEST_F(LoopGradientTest, OfValuesThatAreHandedOn) {
  OPWIRE_TRACE_SEED();
  CheckLoop(
      {.params = "%a: f64[2], %b: f64[2], %p: f64[2], %q: f64[2], %i: f64[2]",
       .before = "%r = full() {shape = [2], value = 0.25, dtype = f64} %five = full() {value = "
                 "5.0, dtype = i64}",
       .carried = {{"a", "f64[2]", "a", "$b"},
                   {"b", "f64[2]", "b", "%s#"},
                   {"p", "f64[2]", "p", "$r"},
                   {"q", "f64[2]", "q", "$i"},
                   {"r", "f64[2]", "r", "$r"},
                   {"n", "i64[]", "five", "$iteration"}},
       .inputs = {{"i", "f64[2]"}},
       .step = "%m# = mul($a, $i) %s# = sin(%m#)",
       .after =
           "%x = add($a, $b) %y = mul($p, $q) %z = mul(%y, $r) %u = add(%x, %z) %loss = sum(%u)"});
}

TEST_F(LoopGradientTest, OfLoopsInLoops) {
  OPWIRE_TRACE_SEED();
  CheckLoop(
      {.params = "%h: f64[2], %w: f64[2], %v: f64[2]",
       .before = "%one = full() {value = 1.0, dtype = i64}",
       .carried = {{"h", "f64[2]", "h", "%h2#"}, {"c", "i64[]", "one", "%c2#"}},
       .inputs = {{"v", "f64[2]"}, {"w", "f64[2]"}},
       .step = R"(%n# = full() {value = 3.0, dtype = i64}
                        %z# = mul($h, $v)
                        %h2#, %c2# = repeat(%n#, [%z#, $c], [$w, $h, $iteration]) calls(@inner))",
       .after = "%m = mul($h, %v) %loss = sum(%m)",
       .functions =
           R"(function @inner(%iteration: i64[], %z: f64[2], %c: i64[], %w: f64[2], %h: f64[2], %outer: i64[]) -> (z: f64[2], c: i64[]) {
                               %0 = mul(%z, %w)
                               %1 = add(%0, %h)
                               %2 = add(%c, %outer)
                               %3 = cast(%2) {dtype = f64}
                               %4 = div(%1, %3)
                               %n = full() {value = 2.0, dtype = i64}
                               %5 = repeat(%n, [%4], []) calls(@innermost)
                               %6 = add(%c, %iteration)
                               return %5, %6 }
                             function @innermost(%iteration: i64[], %z: f64[2]) -> (z: f64[2]) {
                               %0 = sin(%z)
                               return %0 })"},
      {1, 3});
}

// The step's extents are its callers', and functions of the original loops are no longer called.
TEST_F(LoopGradientTest, OfExtentsThatOnlyCallersBind) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%x: f64[?n, 2], %w: f64[2]",
             .before = "%twice = cat([%x, %x])",
             .carried = {{"h", "f64[?n+?n, 2]", "twice", "%y#"}},
             .inputs = {{"w", "f64[2]"}},
             .step = "%m# = mul($h, $w) %y# = tanh(%m#)",
             .after = "%loss = sum($h)"},
            {0, 3});
}

// Only a part of the carried values leads to the loss; the rest may come from ops that have no
// gradient.
TEST_F(LoopGradientTest, PassByWhatTheLossDoesNotDependOn) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%h: f64[2], %w: f64[2], %i: f64[2]",
             .before = "%zero = zeros() {dtype = f64}",
             .carried = {{"h", "f64[2]", "h", "%y#"}, {"s", "f64[]", "zero", "%t#"}},
             .inputs = {{"w", "f64[2]"}, {"i", "f64[2]"}},
             .step = "%m# = mul($h, $w) %y# = tanh(%m#) %e# = mul(%y#, $i) %p# = prod(%e#) %t# = "
                     "add($s, %p#)",
             .after = "%loss = sum($h)"},
            {3});
}

// Steps of random nodes. Random values become their carried results.
TEST_F(LoopGradientTest, OfRandomSteps) {
  OPWIRE_TRACE_SEED();
  const auto below = [&](size_t n) { return static_cast<size_t>(random_() % n); };
  for (uint64_t i = 0; i < ProgramCount(100); ++i) {
    Stepped program{.before = "%one = full() {shape = [2], value = 1.0, dtype = f64}"};
    std::vector<std::string> values;
    const auto param = [&] {
      const std::string name = fmt::format("p{}", values.size());
      program.params += fmt::format("{}%{}: f64[2]", program.params.empty() ? "" : ", ", name);
      values.push_back("$" + name);
      return name;
    };
    for (size_t k = below(3); k > 0; --k) program.inputs.emplace_back(param(), "f64[2]");
    const size_t carried = 1 + below(4);
    for (size_t k = 0; k < carried; ++k) {
      const std::string name = param();
      program.carried.push_back({name, "f64[2]", below(4) == 0 ? "one" : name, ""});
    }
    for (size_t k = below(8); k > 0; --k) {
      const std::string &x = values[below(values.size())], &y = values[below(values.size())],
                        name = fmt::format("%v{}#", k);
      program.step +=
          below(2) == 0
              ? fmt::format("{} = {}({})\n", name, below(2) == 0 ? "cos" : "tanh", x)
              : fmt::format("{} = {}({}, {})\n", name, below(2) == 0 ? "mul" : "sub", x, y);
      values.push_back(name);
    }
    program.after = "%s0 = full() {value = 0.0, dtype = f64}\n";
    for (size_t k = 0; k < carried; ++k) {
      Stepped::Carried& c = program.carried[k];
      c.next = values[below(values.size())];
      if (below(3) > 0) {
        program.step += fmt::format("%e{}# = sin({})\n", k, c.next);
        c.next = fmt::format("%e{}#", k);
      }
      const std::string summed = below(2) == 0 ? "%one" : fmt::format("%w{}", k);
      program.after += fmt::format("%w{} = cos(${}) %t{} = sum({}) %s{} = add(%s{}, %t{})\n", k,
                                   c.name, k, summed, k + 1, k, k);
    }
    program.after += fmt::format("%loss = sum(%s{})", carried);
    CheckWrittenOut(program, static_cast<int>(below(5)), 1e-10);
    if (HasFatalFailure()) return;
  }
}

// Gradients are summed in their own type.
TEST_F(LoopGradientTest, OtherTypesKeepTheirs) {
  const Module with = WithGradients(R"(program @f(%x: bf16[4], %w: f32[4]) -> (loss: f32[]) {
                                         %k = full() {value = 3.0, dtype = i64}
                                         %y = repeat(%k, [%x], [%w]) calls(@step)
                                         %f = cast(%y) {dtype = f32}
                                         %loss = sum(%f)
                                         return %loss }
                                       function @step(%iteration: i64[], %x: bf16[4], %w: f32[4]) -> (x: bf16[4]) {
                                         %0 = cast(%x) {dtype = f32}
                                         %1 = mul(%0, %w)
                                         %2 = cast(%1) {dtype = bf16}
                                         return %2 })",
                                    {"x", "w"});
  const ValueTypes values(with.functions[0]);
  const auto type = [&](size_t result) {
    return ToString(*values.types[static_cast<size_t>(with.functions[0].results[result].value)],
                    with.dims);
  };
  EXPECT_EQ(type(1), "bf16[4]");
  EXPECT_EQ(type(2), "f32[4]");
}

// The recomputation of a step does not emit again, wherever it emits.
TEST_F(LoopGradientTest, EmitOnce) {
  const std::string text = R"(program @f(%x: f64[2]) -> (loss: f64[]) {
                                %n = full() {value = 3.0, dtype = i64}
                                %y = repeat(%n, [%x], []) calls(@step)
                                %loss = sum(%y)
                                return %loss }
                              function @step(%iteration: i64[], %x: f64[2]) -> (x: f64[2]) {
                                emit(%iteration) {name = "iteration"}
                                %n = full() {value = 2.0, dtype = i64}
                                %0 = gt(%iteration, %n)
                                %k = if(%0, [%iteration]) calls(@tell, @pass) -> (i64[])
                                %s = cast(%k) {dtype = f64}
                                %1 = repeat(%n, [%x], [%s]) calls(@inner)
                                return %1 }
                              function @inner(%iteration: i64[], %x: f64[2], %s: f64[]) -> (x: f64[2]) {
                                %0 = mul(%x, %s)
                                emit(%0) {name = "x"}
                                %1 = sin(%0)
                                return %1 }
                              function @tell(%t: i64[]) -> (t: i64[]) { emit(%t) {name = "told"} %0 = add(%t, %t) return %0 }
                              function @pass(%t: i64[]) -> (t: i64[]) { emit(%t) {name = "passed"} %0 = add(%t, %t) return %0 })";
  const auto parts = [&](const Module& m) {
    Values inputs;
    Run(m, inputs, 0.3, 1.2);
    return std::ranges::count_if(shell_.sent, [](const FakeShell::Message& sent) {
      AlignedBytes memory;
      return !DecodeReply(AsBytes(sent.head), memory).value()->last();
    });
  };
  ASSERT_OK_AND(const Module before, Parse(text, "test.opw"));
  EXPECT_EQ(parts(before), 3 * 4);
  EXPECT_EQ(parts(WithGradients(text, {"x"})), 3 * 4);
}

// Of the kept values, an iteration writes and reads only its own row.
TEST(Gradient, LoopsKeepInPlace) {
  ASSERT_OK_AND(Module m, Parse(R"(program @f(%x: f32[8]) -> (loss: f32[]) {
                                     %n = full() {value = 7.0, dtype = i64}
                                     %y = repeat(%n, [%x], []) calls(@step)
                                     %loss = sum(%y)
                                     return %loss }
                                   function @step(%iteration: i64[], %x: f32[8]) -> (x: f32[8]) {
                                     %0 = sin(%x)
                                     return %0 })",
                                "test.opw"));
  ASSERT_OK_AND(m, Gradient(m, std::vector<std::string>{"x"}));
  ASSERT_OK(RunPasses(m).status());
  EXPECT_EQ(WithoutVariants(StepsOf(Print(m))),
            (std::vector<std::string>{"full",    "zeros",     "copy",    "control", "control",
                                      "reshape", "kv_append", "sin",     "control", "sum",
                                      "full",    "copy",      "control", "control", "full",
                                      "sub",     "slice",     "cos",     "mul",     "control"}))
      << "the copies are of %x and of the gradient that the way back begins with";
}

TEST(Gradient, ErrorsOfLoops) {
  // Returns the error for a step, with the loop and its number of iterations.
  const auto error = [](const std::string& step,
                        const std::string& times = "%n = full() {value = 3.0, dtype = i64}",
                        const std::string& functions = "") {
    auto m = Parse(
        fmt::format("program @f(%x: f32[2], %steps: i64[]) -> (loss: f32[]) {{ {} %y = repeat(%n, "
                    "[%x], []) calls(@step) loc(\"model.py:3\") %loss = sum(%y) return %loss }}\n"
                    "function @step(%iteration: i64[], %x: f32[2]) -> (x: f32[2]) {{ {} }}\n{}",
                    times, step, functions),
        "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    return Gradient(*std::move(m), std::vector<std::string>{"x"}).status().ToString();
  };
  EXPECT_EQ(
      error("%0 = sin(%x) return %0", "%n = copy(%steps)"),
      "UNIMPLEMENTED: gradient: expected a constant number of iterations, got one that only a run "
      "knows, for repeat (node %1 of \"f\", model.py:3)");
  EXPECT_EQ(error("%0 = sin(%x) return %0", "%n = full() {value = 1e18, dtype = i64}"),
            "RESOURCE_EXHAUSTED: gradient: expected at most 281474976710656 iterations, as carried "
            "values are "
            "kept for each, got 1000000000000000000 for repeat (node %1 of \"f\", model.py:3)");
  EXPECT_EQ(
      error("%a = sin(%x) emit(%a) {name = \"a\"} %b, %m = l2_norm([%a]) loc(\"model.py:7\") %c = "
            "add(%a, %b) return %c"),
      "UNIMPLEMENTED: gradient: there is none of l2_norm (node %1 of \"step\", model.py:7) by its "
      "norm");
  const std::string half =
      "function @half(%iteration: i64[], %x: f32[2]) -> (x: f32[2]) { %0 = sin(%x) return %0 }";
  EXPECT_EQ(
      error("%0 = repeat(%iteration, [%x], []) calls(@half) return %0",
            "%n = full() {value = 3.0, dtype = i64}", half),
      "UNIMPLEMENTED: gradient: expected a constant number of iterations, got one that only a run "
      "knows, for repeat (node %0 of \"step\")");
  EXPECT_EQ(error("%n = full() {value = 2.0, dtype = i64} emit(%n) {name = \"n\"} %0 = repeat(%n, "
                  "[%x], []) calls(@half) return %0",
                  "%n = full() {value = 3.0, dtype = i64}",
                  "function @half(%iteration: i64[], %x: f32[2]) -> (x: f32[2]) { emit(%x) {name = "
                  "\"x\"} %0, %m = l2_norm([%x]) %1 = mul(%x, %0) return %1 }"),
            "UNIMPLEMENTED: gradient: there is none of l2_norm (node %0 of \"half\") by its norm");
  EXPECT_EQ(
      error("%0 = while([%x], []) calls(@asks, @then) {max_trips = 2} return %0",
            "%n = full() {value = 3.0, dtype = i64}",
            "function @asks(%x: f32[2]) -> (c: bool[]) { %0 = full() {value = 1.0, dtype = bool} "
            "return %0 } function @then(%x: f32[2]) -> (x: f32[2]) { %0 = sin(%x) return %0 }"),
      "UNIMPLEMENTED: gradient: there is none of while (node %0 of \"step\")");

  ASSERT_OK_AND(const Module encoded,
                Parse(R"(program @f(%x: f32[32], %q: i8:q8_0[32]) -> (loss: f32[]) {
                                                 %n = full() {value = 3.0, dtype = i64}
                                                 %y, %r = repeat(%n, [%x, %q], []) calls(@step)
                                                 %loss = sum(%y)
                                                 return %loss }
                                               function @step(%iteration: i64[], %x: f32[32], %q: i8:q8_0[32]) -> (x: f32[32], q: i8:q8_0[32]) {
                                                 %c = full() {value = 1.0, dtype = bool}
                                                 %0 = if(%c, [%x, %q]) calls(@one, @one) -> (f32[32])
                                                 %1 = mul(%x, %0)
                                                 return %1, %q }
                                               function @one(%x: f32[32], %q: i8:q8_0[32]) -> (x: f32[32]) { return %x })",
                      "test.opw"));
  EXPECT_EQ(Gradient(encoded, std::vector<std::string>{"x"}).status().ToString(),
            "UNIMPLEMENTED: gradient: expected dense tensors as carried values, got "
            "i8:q8_0[32] for repeat (node %1 of \"f\")");
}

}  // namespace
}  // namespace opwire

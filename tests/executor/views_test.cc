// Strided views: which moves of attention's operands and results become views, and that the results
// equal those with real moves.
#include <fmt/format.h>

#include "executor/plan/program.h"
#include "ir/passes/gradient.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/executor/fixture.h"
#include "tests/ir/random_program.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

using Labels = std::vector<std::string>;

Labels Steps(const std::string& text, std::vector<int64_t> symbols = {}) {
  return WithoutVariants(StepsOf(text, std::move(symbols)));
}

// Three slices of one tensor for the heads' operands, as in a transformer.
constexpr const char* kBlock = R"(
dim ?b in [1, 64]
program @block(%qkv: f32[?b, 6, 24], %w: f32[8, 8]) -> (y: f32[?b, 6, 8]) {
  %z = full() {value = 0.0, dtype = i64}
  %e = full() {value = 8.0, dtype = i64}
  %s = full() {value = -8.0, dtype = i32}
  %q = slice(%qkv, %z) {dim = 2, length = 8}
  %k = slice(%qkv, %e) {dim = 2, length = 8}
  %v = slice(%qkv, %s) {dim = -1, length = 8}
  %q4 = reshape(%q) {shape = [?b, 6, 2, 4]}
  %k4 = reshape(%k) {shape = [?b, 6, 2, 4]}
  %v4 = reshape(%v) {shape = [?b, 6, 2, 4]}
  %qh = permute(%q4) {dims = [0, 2, 1, 3]}
  %kh = permute(%k4) {dims = [0, 2, 1, -1]}
  %vh = permute(%v4) {dims = [0, 2, 1, 3]}
  %t, %lse = scaled_dot_product_attention(%qh, %kh, %vh) {causal = true}
  %tp = permute(%t) {dims = [0, 2, 1, 3]}
  %tr = reshape(%tp) {shape = [?b, 6, 8]}
  %y = matmul(%tr, %w)
  return %y
})";

TEST(Views, AttentionReadsPartsByHeads) {
  EXPECT_EQ(Steps(kBlock, {3}),
            (Labels{"full", "full", "full", "scaled_dot_product_attention", "matmul"}));
}

TEST(Views, GradientsAreWrittenWhereTheyAreJoined) {
  std::string text = kBlock;
  text.replace(text.find("(y: f32[?b, 6, 8])"), 18, "(loss: f32[])");
  text.replace(text.find("return %y"), 9, "%loss = sum(%y) return %loss");
  text.replace(text.find("%qkv: f32[?b, 6, 24]"), 20, "%x: f32[?b, 6, 8], %in: f32[8, 24]");
  text.insert(text.find("%z ="), "%qkv = matmul(%x, %in)\n");
  ASSERT_OK_AND(const Module m, Parse(text, "test.opw"));
  ASSERT_OK_AND(const Module both, Gradient(m, std::vector<std::string>{"in", "w"}));
  for (const std::string& label : Steps(Print(both), {2})) {
    for (const char* move : {"permute", "slice", "cat"}) EXPECT_NE(label, move);
  }
}

TEST(Views, WhatSomebodyReadsDenseIsMoved) {
  const std::string head =
      "program @f(%x: f32[2, 6, 2, 4], %k: f32[2, 2, 6, 4]) -> (y: f32[2, 2, 6, 4], z: f32[2, 2, "
      "6, 4]) { %p = permute(%x) {dims = [0, 2, 1, 3]} ";
  EXPECT_EQ(Steps(head +
                  "%y, %l = scaled_dot_product_attention(%p, %k, %k) %z = exp(%k) return %y, %z }"),
            (Labels{"scaled_dot_product_attention", "exp"}));
  EXPECT_EQ(Steps(head +
                  "%y, %l = scaled_dot_product_attention(%p, %k, %k) %z = exp(%p) return %y, %z }"),
            (Labels{"permute", "scaled_dot_product_attention", "exp"}));
  EXPECT_EQ(Steps(head + "%y, %l = scaled_dot_product_attention(%p, %k, %k) return %y, %p }"),
            (Labels{"permute", "scaled_dot_product_attention"}));
}

TEST(Views, AxesOfRowsAndUnknownStartsAreMoved) {
  EXPECT_EQ(Steps("program @f(%x: f32[1, 2, 4, 6], %k: f32[1, 2, 6, 4]) -> (y: f32[1, 2, 6, 4]) {"
                  " %p = permute(%x) {dims = [0, 1, 3, 2]} %y, %l = "
                  "scaled_dot_product_attention(%p, %k, %k) return %y }"),
            (Labels{"permute", "scaled_dot_product_attention"}));
  EXPECT_EQ(Steps("program @f(%x: f32[1, 4, 6, 4], %at: i64[], %k: f32[1, 2, 6, 4]) -> (y: f32[1, "
                  "2, 6, 4]) {"
                  " %p = slice(%x, %at) {dim = 1, length = 2} %y, %l = "
                  "scaled_dot_product_attention(%p, %k, %k) return %y }"),
            (Labels{"slice", "scaled_dot_product_attention"}));
}

class ViewsTest : public CoreTest {
 protected:
  // Returns the same program with real moves.
  std::string Moved(std::string text) const {
    for (const std::string move : {"permute", "slice", "cat"}) {
      const std::string pinned = fmt::format("= {}@{}(", move, variants_.Of(move).front().name);
      for (size_t at = 0; (at = text.find("= " + move + "(", at)) != text.npos; at += pinned.size())
        text.replace(at, move.size() + 3, pinned);
    }
    return text;
  }
  int64_t ViewsOf(const Module& m) const {
    const std::shared_ptr<Program> program =
        PrepareProgram(Serialise(m), std::make_shared<KernelSet>(KernelSet{.variants = variants_}),
                       ExecutorLimits())
            .value();
    int64_t count = 0;
    for (size_t n = 0; n < m.functions[0].nodes.size(); ++n)
      count += program->plans[0].views.kinds[n] != ViewKind::kNone &&
               m.functions[0].nodes[n].op != "reshape";
    return count;
  }
};

// Attention over parts of tensors with axes in any order, and its gradients.
std::string RandomAttention(std::mt19937_64& random) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t b = 1 + below(3), t = 1 + below(9), h = 1 + below(3), d = 4 * (1 + below(4)),
                width = h * d;
  std::string params, body = "%z = full() {value = 0.0, dtype = i64}\n", heads[3];
  const bool one = below(2) == 0, leading = below(2) == 0, inout = below(4) == 0;
  if (one)
    params = leading ? fmt::format("%x: f32[3, {}, {}, {}]", b, t, width)
                     : fmt::format("%x: f32[{}, {}, {}]", b, t, 3 * width);
  for (int i = 0; i < 3; ++i) {
    std::string part = fmt::format("%x{}", i);
    if (!one) {
      params += fmt::format("{}%x{}: f32[{}, {}, {}]", i ? ", " : "", i, b, t, width);
    } else if (leading) {
      body += fmt::format(
          "%s{0} = full() {{value = {0}.0, dtype = i64}} %l{0} = slice(%x, %s{0}) {{length = 1}} "
          "%x{0} = reshape(%l{0}) {{shape = [{1}, {2}, {3}]}}\n",
          i, b, t, width);
    } else {
      body += fmt::format(
          "%s{0} = full() {{value = {1}.0, dtype = i64}} %x{0} = slice(%x, %s{0}) {{dim = 2, "
          "length = {2}}}\n",
          i, i == 2 ? -width : i * width, width);
    }
    if (below(4) == 0) {
      body += fmt::format("%e{0} = neg({1})\n", i, part);
      part = fmt::format("%e{}", i);
    }
    body += fmt::format(
        "%r{0} = reshape({1}) {{shape = [{2}, {3}, {4}, {5}]}} %h{0} = permute(%r{0}) {{dims = [0, "
        "2, 1, 3]}}\n",
        i, part, b, t, h, d);
    heads[i] = fmt::format("%h{}", i);
  }
  body += fmt::format("%y, %lse = scaled_dot_product_attention({}, {}, {}) {{causal = {}}}\n",
                      heads[0], heads[1], heads[2], below(2) == 0);
  body += fmt::format(
      "%yp = permute(%y) {{dims = [0, 2, 1, 3]}} %yr = reshape(%yp) {{shape = [{}, {}, {}]}}\n", b,
      t, width);
  body += below(3) == 0 ? "%out = copy(%yr)\n" : "%out = exp(%yr)\n";
  params += fmt::format(", %g: f32[{}, {}, {}]", b, t, width);
  body += fmt::format(
      "%gr = reshape(%g) {{shape = [{}, {}, {}, {}]}} %gp = permute(%gr) {{dims = [0, 2, 1, 3]}}\n",
      b, t, h, d);
  body += fmt::format(
      "%d0, %d1, %d2 = scaled_dot_product_attention_backward(%gp, {}, {}, {}, %y, %lse, _) "
      "{{causal = true}}\n",
      heads[0], heads[1], heads[2]);
  std::string joined;
  for (int i = 0; i < 3; ++i) {
    body += fmt::format(
        "%q{0} = permute(%d{0}) {{dims = [0, 2, 1, 3]}} %w{0} = reshape(%q{0}) {{shape = [{1}, "
        "{2}, {3}]}}\n",
        i, b, t, width);
    joined += fmt::format("{}%w{}", i ? ", " : "", i);
  }
  const int64_t axis = below(3);
  body += fmt::format("%c = cat([{}]) {{dim = {}}}\n", joined, axis);
  std::string results = fmt::format("out: f32[{}, {}, {}]", b, t, width);
  const std::string whole = fmt::format("f32[{}, {}, {}]", axis == 0 ? 3 * b : b,
                                        axis == 1 ? 3 * t : t, axis == 2 ? 3 * width : width);
  switch (below(3)) {
    case 0:
      body += "%grad = neg(%c)\n";
      break;
    case 1:
      body += "%grad = add(%c, %c)\n";
      break;
    default:
      body += "%grad = copy(%c)\n";
      break;
  }
  if (inout) {
    params += ", inout %sum: " + whole;
    body += "%next = add(%sum, %c)\n";
    results = "sum: " + whole + ", " + results;
  }
  return fmt::format("program @f({}) -> ({}, grad: {}) {{\n{}return {}%out, {}\n}}", params,
                     results, whole, body, inout ? "%next, " : "",
                     below(5) == 0 && !inout ? "%c" : "%grad");
}

TEST_F(ViewsTest, RandomAttentionGivesEqualResults) {
  const uint64_t programs = ProgramCount(40);
  const uint64_t seed = Seed();
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(seed);
  Restart();
  Client c = Hello();
  int64_t views = 0;
  for (uint64_t i = 0; i < programs && !HasFailure(); ++i) {
    const std::string text = RandomAttention(random);
    ASSERT_OK_AND(const Module m, Parse(text, "test.opw"));
    ASSERT_OK_AND(const Module moved, Parse(Moved(text), "test.opw"));
    views += ViewsOf(m);
    ASSERT_EQ(ViewsOf(moved), 0);
    const std::vector<std::string> got = Outcome(c, m, seed + static_cast<uint64_t>(i)),
                                   expected = Outcome(c, moved, seed + static_cast<uint64_t>(i));
    EXPECT_EQ(got[0], "OK") << text;
    EXPECT_EQ(got, expected) << text;
  }
  EXPECT_GT(views, static_cast<int64_t>(5 * programs));
}

}  // namespace
}  // namespace opwire::executor

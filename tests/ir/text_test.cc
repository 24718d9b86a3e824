// The text form: golden text, round trips, and the positions of errors.
#include "ir/text/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "ir/program/builder.h"
#include "ir/program/serialise.h"
#include "ir/verify/verify.h"
#include "tests/ir/random_program.h"
#include "tests/seed.h"

namespace opwire {
namespace {

// The example of the design, as it is printed.
constexpr std::string_view kMlp =
    R"(program @mlp(%x: f32[?b, 64], %w1: f32[64, 32], %b1: f32[32], %w2: f32[32, 10]) -> (y: f32[?b, 10]) {
  %0 = matmul(%x, %w1)
  %1 = add(%0, %b1)
  %2 = relu(%1)
  %3 = matmul(%2, %w2)
  %4 = softmax(%3) {dim = -1}
  return %4
}
)";

// A program with every part of the text form.
constexpr std::string_view kEverything = R"(dim ?b in [1, 4096] multiple 8
dim ?n

program @main(%x: f32[?b, 4], inout %w: f32[4, 4], %i: i64[?b], dim %n: ?n, %q: i8:q8_0[8, 32]) -> (y: f32[?b, 8], w: f32[4, 4], r: f32[?n+1], q: i8:q8_0[8, 32]) {
  %0 = matmul@cpu.onednn(%x, %w) {transpose_y = true} loc("model.py:3 \"fc\"")
  %1 = cat([%0, %x]) {dim = -1}
  %2 = layer_norm(%1, _, _) {eps = 1e-05}
  %3 = choose(%i, [%i, %i])
  %4 = embedding(%w, %3)
  %5 = full() {shape = [], value = -inf}
  %6 = constant() {type = f32[2, 1], value = #0}
  %7 = values() {value = [1.0, -0.0, nan, inf, 1e+300]}
  %8 = full() {shape = [?n+1], value = 0.1, dtype = f32}
  %9 = zeros() {shape = [4, 4]}
  %10 = zeros() {shape = [2*?b, min(4, ?b), (?b+?n)/2, ?b%3, max(0, ?n+-1), ?b/8*?n]}
  return %2, %9, %8, %q
}

function @helper(%x: f32[]) -> (y: f32[]) {
  %0 = neg(%x)
  return %0
}

blob 0 =
  "0000803f000000c0"
)";

StatusOr<Module> ParseVerified(std::string_view text) {
  OPWIRE_ASSIGN_OR_RETURN(Module m, Parse(text, "t.opw"));
  OPWIRE_RETURN_IF_ERROR(VerifyModule(m).status());
  return m;
}

std::string ParseError(std::string_view text) {
  const auto m = Parse(text, "t.opw");
  return m.ok() ? "parsed" : MessageOf(m.status());
}

// Returns the error of a program of one node.
std::string ErrorOfNode(std::string_view node) {
  return ParseError("program @f(%x: f32[4, 8], %y: f32[6, 2], %i: i64[3]) -> (z) {\n  " +
                    std::string(node) + "\n  return %0\n}\n");
}

TEST(Text, PrintsTheDesignsExample) {
  const auto m = ParseVerified(kMlp);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(Print(*m), kMlp);
  EXPECT_EQ(m->functions[0].nodes[4].attrs, (std::vector<NamedAttr>{{"dim", int64_t{-1}}}));
}

TEST(Text, PrintsEverything) {
  const auto m = ParseVerified(kEverything);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(Print(*m), kEverything);
  EXPECT_EQ(m->blobs, std::vector<std::string>{std::string("\0\0\x80\x3f\0\0\0\xc0", 8)});
  EXPECT_EQ(m->functions[0].nodes[0].location, "model.py:3 \"fc\"");
  EXPECT_EQ(m->functions[0].nodes[0].pin, "cpu.onednn");
  EXPECT_EQ(m->functions[0].params[3].mode, ParamMode::kDim);
  EXPECT_EQ(m->dims.symbols()[0], (DimSymbol{"b", 1, 4096, 8}));
}

// The page that explains the form begins with a program.
TEST(Text, TheDocumentedExampleIsRight) {
  const auto page = std::filesystem::path(__FILE__).parent_path() / "../../docs/text-form.md";
  std::ifstream in(page);
  ASSERT_TRUE(in) << page;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t begin = text.find("```\n") + 4;
  const auto m = ParseVerified(text.substr(begin, text.find("```", begin) - begin));
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->functions[0].nodes.size(), 5u);
}

TEST(Text, BuilderAndParserAgree) {
  ModuleBuilder b;
  FunctionBuilder f = b.Function("mlp");
  const Value x = f.In("x", DType::kF32, {f.Symbol("b"), 64}),
              w1 = f.In("w1", DType::kF32, {64, 32});
  const Value b1 = f.In("b1", DType::kF32, {32}), w2 = f.In("w2", DType::kF32, {32, 10});
  const Value h = f.Op("relu", {f.Op("add", {f.Op("matmul", {x, w1}), b1})});
  f.Return("y", f.Op("softmax", {f.Op("matmul", {h, w2})}, {{"dim", -1}}));
  const auto built = b.Finish();
  ASSERT_TRUE(built.ok()) << built.status();
  const auto parsed = Parse(kMlp, "t.opw");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(Equal(*built, *parsed));
  EXPECT_EQ(Print(*built), kMlp);
}

TEST(Text, AliasesParseToTheirRow) {
  const auto m = ParseVerified(R"(
program @f(%x: f32[4], %s: f32[]) -> (y, z, t: f32[2, 4]) {
  %a = rsubscalar(%x, %s)   // s - x
  %b = powscalar(%a, %s)
  %c = concat([%a, %b]) {dim = 0}
  %d = reshape(%c) {shape = [2, 4]}
  return %a, %b, %d
})");
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->functions[0].nodes[0].op, "sub");
  EXPECT_EQ(m->functions[0].nodes[0].operands, (std::vector<ValueId>{1, 0}));
  EXPECT_EQ(m->functions[0].nodes[1].operands, (std::vector<ValueId>{2, 1}));
  EXPECT_EQ(m->functions[0].nodes[2].op, "cat");
}

StatusOr<Module> ThroughBytes(const Module& m) {
  const std::string bytes = Serialise(m);
  return Deserialise({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

TEST(Text, RoundTripsOfRandomPrograms) {
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  size_t nodes = 0;
  std::set<std::string> ops;
  // Ops are drawn at random: the test continues until each was drawn.
  const auto drawn = static_cast<size_t>(std::ranges::count_if(
      Catalogue().rows(), [](const OpDef& row) { return row.control != Control::kEmit; }));
  for (int i = 0; i < static_cast<int>(ProgramCount(300)) || (ops.size() < drawn && i < 10'000);
       ++i) {
    const Module m = RandomModule(
        rng, {.nodes = 1 + i % 40, .functions = 1 + i % 3, .control = true, .encoded = true});
    const std::string text = Print(m);
    auto again = Parse(text, "random.opw");
    ASSERT_TRUE(again.ok()) << again.status() << "\nseed " << seed << "\n" << text;
    ASSERT_TRUE(Equal(m, *again)) << "seed " << seed << "\n"
                                  << text << "\nagain\n"
                                  << Print(*again);
    ASSERT_EQ(Print(*again), text) << "seed " << seed;
    const auto bytes = ThroughBytes(m);
    ASSERT_TRUE(bytes.ok()) << bytes.status() << "\nseed " << seed << "\n" << text;
    ASSERT_TRUE(Equal(m, *bytes)) << "seed " << seed << "\n"
                                  << text << "\nfrom its bytes\n"
                                  << Print(*bytes);
    const auto typing = VerifyModule(*again);
    ASSERT_TRUE(typing.ok()) << typing.status() << "\nseed " << seed << "\n" << text;
    for (const Function& f : m.functions) {
      nodes += f.nodes.size();
      for (const Node& n : f.nodes) ops.insert(n.op);
    }
  }
  // The generator uses every op, so the round trips cover every kind of attribute.
  for (const OpDef& row : Catalogue().rows())
    EXPECT_TRUE(row.control == Control::kEmit || ops.contains(row.name))
        << row.name << ", seed " << seed;
  EXPECT_GT(nodes, 5000u) << "seed " << seed;
}

TEST(Text, EqualTellsProgramsApart) {
  const Module m = *Parse(kEverything, "t.opw");
  EXPECT_TRUE(Equal(m, m));
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"multiple 8", "multiple 4"},
      {"transpose_y = true", "transpose_y = false"},
      {"onednn", "plain"},
      {"model.py:3", "model.py:4"},
      {"nan", "-nan"},
      {"-0.0", "0.0"},
      {"00c0", "00c1"},
      {"@helper", "@help"},
      {"?n+1", "?n+2"},
      {"choose(%i, [%i, %i])", "choose(%i, [%i])"}};
  for (const auto& [from, to] : edits) {
    std::string text(kEverything);
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
    const auto other = Parse(text, "t.opw");
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_FALSE(Equal(m, *other)) << from << " -> " << to;
  }
}

TEST(Text, FloatsRoundTripToTheBit) {
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  ModuleBuilder b;
  FunctionBuilder f = b.Function("f");
  Doubles values = {0.0, -0.0, 5e-324,      2.2250738585072014e-308, 1.7976931348623157e308,
                    0.1, 1e21, 123456789.0, 9007199254740993.0};
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<double>(rng()));
  f.Return("y", f.Op("values", {}, {{"value", values}}));
  for (size_t i = 0; i < 40; ++i)
    f.Return("y" + std::to_string(i), f.Scalar(DType::kF64, values[i]));
  const auto m = b.Finish();
  ASSERT_TRUE(m.ok()) << m.status();
  const auto again = Parse(Print(*m), "t.opw");
  ASSERT_TRUE(again.ok()) << again.status() << ", seed " << seed;
  EXPECT_TRUE(Equal(*m, *again)) << "seed " << seed;
  const auto bytes = ThroughBytes(*m);
  ASSERT_TRUE(bytes.ok()) << bytes.status() << ", seed " << seed;
  EXPECT_TRUE(Equal(*m, *bytes)) << "seed " << seed;
}

TEST(Text, ErrorsSayWhere) {
  EXPECT_EQ(ParseError(""), "t.opw:1:1: expected program, got the end");
  EXPECT_EQ(ParseError("program mlp"), "t.opw:1:9: expected '@', got mlp");
  EXPECT_EQ(ParseError("// only a comment"), "t.opw:1:18: expected program, got the end");
  EXPECT_EQ(ParseError("program @f(%x: f33[2]) -> () { return }"),
            "t.opw:1:16: expected an element type, got f33, did you mean f32, f64, f16?");
  EXPECT_EQ(ParseError("program @f(%x: f32[2) -> () { return }"),
            "t.opw:1:21: expected ',', got )");
  EXPECT_EQ(ParseError("program @f(%x: f32[2], %x: f32[2]) -> () { return }"),
            "t.opw:1:25: %x is defined twice");
  EXPECT_EQ(ParseError("dim ?b in [4, 2]\nprogram"),
            "t.opw:1:5: dimension ?b: expected 0 <= lower <= upper <= 281474976710656 and multiple "
            ">= 1, got 4, 2, 1");
  EXPECT_EQ(
      ParseError("program @f() -> (y: f32[2]) {\n  %0 = zeros() {shape = [3]}\n  return %0\n}"),
      "t.opw:1:19: result y: expected f32[3] as the program makes it, got f32[2]");
  EXPECT_EQ(ParseError("program @f() -> () { return }\nblob 1 = \"\""),
            "t.opw:2:6: expected blob 0, got 1");
  EXPECT_EQ(ParseError("program @f() -> () { return }\nblob 0 = \"0g\""),
            "t.opw:2:10: expected pairs of hexadecimal digits");
  EXPECT_EQ(ParseError("program @f() -> () { return }\nblob 0 = \"00"),
            "t.opw:2:10: expected a string that ends on its line");
  EXPECT_EQ(ParseError("program @f() -> () { return } x"),
            "t.opw:1:31: expected function, blob or the end, got x");
}

TEST(Text, ErrorsOfNodes) {
  EXPECT_EQ(ErrorOfNode("%0 = matmul(%x, %y)"),
            "t.opw:2:8: matmul: inner dimensions differ: [4, 8] x [6, 2] (8 and 6)");
  EXPECT_EQ(ErrorOfNode("%0 = matmull(%x, %y)"),
            "t.opw:2:8: unknown op matmull, did you mean matmul?");
  EXPECT_EQ(ErrorOfNode("%0 = relu(%q)"), "t.opw:2:14: %q is not defined before this");
  EXPECT_EQ(ErrorOfNode("%0 = relu(%x, %y)"),
            "t.opw:2:8: relu: expected 1 operands, got 2; it is relu(x: S) -> y: S");
  EXPECT_EQ(ErrorOfNode("%0, %1 = relu(%x)"), "t.opw:2:12: relu: expected 1 results, got 2 names");
  EXPECT_EQ(ErrorOfNode("%0 = softmax(%x) {dims = 1}"),
            "t.opw:2:21: softmax: unknown attribute dims; it takes dim, did you mean dim?");
  EXPECT_EQ(ErrorOfNode("%0 = softmax(%x) {dim = 1, dim = 1}"),
            "t.opw:2:30: softmax: attribute dim is given twice");
  EXPECT_EQ(ErrorOfNode("%0 = softmax(%x) {dim = 1.5}"),
            "t.opw:2:27: expected an integer, got 1.5");
  EXPECT_EQ(ErrorOfNode("%0 = softmax(%x) {dim = 99999999999999999999}"),
            "t.opw:2:27: expected a decimal integer of 64 bits, got 99999999999999999999");
  EXPECT_EQ(ErrorOfNode("%0 = cast(%x)"), "t.opw:2:8: cast: attribute dtype (dtype) is missing");
  EXPECT_EQ(ErrorOfNode("%0 = cat(%x, %y)"),
            "t.opw:2:12: expected a list in brackets for operand xs, got %");
  EXPECT_EQ(ErrorOfNode("%0 = exp(%i)"),
            "t.opw:2:8: exp: operand x: expected f64, f32, f16, bf16, got i64[3]");
  EXPECT_EQ(ErrorOfNode("%0 = add(%x, %i)"),
            "t.opw:2:8: add: operand y: expected f32 as in x, got i64[3]");
  EXPECT_EQ(ErrorOfNode("%0 = relu:v7(%x)"), "t.opw:2:13: expected v1, got v7");
  EXPECT_EQ(ErrorOfNode("%0 = relu(%x) calls(@nothing)"),
            "t.opw:2:24: there is no function @nothing");
  EXPECT_EQ(ErrorOfNode("%0 = full() {value = 1e999}"),
            "t.opw:2:24: expected a number that f64 holds, got 1e999");
  EXPECT_EQ(ErrorOfNode("%0 = matmul(%x, %x) {precision = \"\\q\"}"),
            "t.opw:2:37: expected \\\", \\\\, \\n or \\xNN, got \\q\"");
}

// Any bytes get an answer: truncated and altered programs, and nesting that would overflow a stack.
TEST(Text, AnyBytesAreSafe) {
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  OPWIRE_TRACE_SEED();
  const std::string base(kEverything);
  for (size_t cut = 0; cut < base.size(); ++cut)
    EXPECT_FALSE(Parse(base.substr(0, cut), "t.opw").ok() && cut < base.find('}')) << cut;
  for (int i = 0; i < 3000; ++i) {
    std::string text = base;
    for (int edits = 1 + static_cast<int>(rng() % 4); edits > 0; --edits) {
      const size_t at = rng() % text.size();
      if (rng() % 2)
        text[at] = static_cast<char>(rng() % 256);
      else
        text.erase(at, rng() % 8);
    }
    auto m = Parse(text, "t.opw");
    if (!m.ok()) {
      EXPECT_LT(m.status().message().size(), 2000u);
      continue;
    }
    if (VerifyModule(*m).ok()) {
      const auto again = Parse(Print(*m), "t.opw");
      ASSERT_TRUE(again.ok()) << again.status() << text;
      EXPECT_TRUE(Equal(*m, *again)) << text;
    }
  }
  const std::string deep = "program @f(%x: f32[" + std::string(100000, '(') + "1";
  EXPECT_EQ(ParseError(deep),
            "t.opw:1:84: expected at most 64 dimensions within each other, got more");
  std::string wide = "program @f(%x: f32[?b";
  for (int i = 0; i < 5000; ++i) wide += "*?b";
  EXPECT_NE(ParseError(wide).find("at most 256 terms"), std::string::npos);
  std::string names = "program @f(";
  for (int i = 0; i < 1025; ++i)
    names += "dim %a" + std::to_string(i) + ": ?a" + std::to_string(i) + ", ";
  EXPECT_NE(ParseError(names).find("at most 1024 dimension symbols"), std::string::npos);
  // Ranks that would double with each line.
  std::string ranks =
      "program @f(%x: i64[2, 2, 2, 2, 2, 2, 2, 2]) -> () {\n  %0 = index_select(%x, %x)\n";
  for (int i = 1; i < 40; ++i)
    ranks += "  %" + std::to_string(i) + " = index_select(%" + std::to_string(i - 1) + ", %" +
             std::to_string(i - 1) + ")\n";
  EXPECT_EQ(ParseError(ranks),
            "t.opw:3:8: index_select: result y: expected at most rank 16, got 29");
}

}  // namespace
}  // namespace opwire

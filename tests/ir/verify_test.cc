// The verifier: each rule broken once in an otherwise valid program, each limit at its value and
// one above it, and modules that are large or deep on purpose.
#include "ir/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ir/text/text.h"

namespace opwire {
namespace {

constexpr std::string_view kTrain = R"(dim ?b in [1, 64] multiple 2

program @train(%x: f32[?b, 4], inout %w: f32[4, 2], %lr: f32[], dim %n: ?n) -> (y: f32[?b, 2], w: f32[4, 2], c: f32[2], z: f32[?n]) {
  %0 = matmul(%x, %w) loc("train.py:7")
  %1 = mul(%w, %lr)
  %2 = sub(%w, %1)
  %3 = relu(%0)
  %4 = constant() {type = f32[2], value = #0}
  %5 = zeros() {shape = [?n]}
  %6 = cat([%3, %0]) {dim = 1}
  %7 = layer_norm(%6, _, _) {dims = 1, eps = 1e-05}
  return %3, %2, %4, %5
}

function @other(%x: f32[]) -> (y: f32[]) {
  %0 = neg(%x)
  return %0
}

blob 0 =
  "0000803f000000c0"
)";

Module Train() {
  auto m = Parse(kTrain, "train.opw");
  EXPECT_TRUE(m.ok()) << m.status();
  return *std::move(m);
}

std::string Verify(Module m, const Limits& limits = {}) {
  return MessageOf(VerifyModule(m, limits).status());
}

TEST(Verify, TypingOfARightProgram) {
  Module m = Train();
  const auto typing = VerifyModule(m);
  ASSERT_TRUE(typing.ok()) << typing.status();
  ASSERT_EQ(typing->functions.size(), 2u);
  const FunctionTyping& f = typing->functions[0];
  ASSERT_EQ(f.nodes.size(), 8u);
  EXPECT_EQ(f.nodes[0].row, Catalogue().Find("matmul"));
  EXPECT_EQ(f.nodes[0].attrs, (std::vector<AttrValue>{false, false, std::string("ieee")}));
  EXPECT_EQ(f.replaced_by, (std::vector<int32_t>{-1, 1, -1, -1}));
  EXPECT_EQ(f.symbols, (std::vector<SymbolSource>{{0, 0}, {3, -1}}));
  EXPECT_TRUE(f.constraints.empty());
  EXPECT_EQ(typing->functions[1].symbols, (std::vector<SymbolSource>{{-1, -1}, {-1, -1}}));
}

TEST(Verify, EachRuleBrokenOnce) {
  using Edit = std::function<void(Module&)>;
  const auto node = [](Module& m, int i) -> Node& { return m.functions[0].nodes[i]; };
  const auto param = [](Module& m, int i) -> Param& { return m.functions[0].params[i]; };
  const auto result = [](Module& m, int i) -> Result& { return m.functions[0].results[i]; };
  const std::pair<Edit, std::string> cases[] = {
      {[](Module& m) { m.features.push_back("tea"); },
       "program: feature \"tea\" is unknown; this verifier knows none"},
      {[](Module& m) { m.functions.clear(); }, "a program has at least one function, got none"},
      {[](Module& m) { m.functions[1].name = "train"; }, "function \"train\" is defined twice"},
      {[](Module& m) { m.functions[1].name = "a b\n"; },
       "function: expected a letter or _, then letters, digits, _ and ., got \"a b\\x0a\""},
      {[&](Module& m) { param(m, 0).name = ""; },
       "parameter: expected a letter or _, then letters, digits, _ and ., got \"\" (\"train\")"},
      {[&](Module& m) { param(m, 0).name = "w"; }, "parameter %w is defined twice (\"train\")"},
      {[&](Module& m) { param(m, 0).mode = static_cast<ParamMode>(9); },
       "parameter %x: unknown mode 9 (\"train\")"},
      {[&](Module& m) { param(m, 3).dim = m.dims.Constant(3); },
       "parameter %n: expected a dimension symbol, got 3 (\"train\")"},
      {[&](Module& m) { param(m, 3).dim = Dim{9999}; },
       "parameter %n: expected a dimension symbol, got none (\"train\")"},
      {[&](Module& m) { param(m, 3).type.dtype = DType::kF32; },
       "parameter %n: a dimension has no type (\"train\")"},
      {[&](Module& m) { param(m, 0).type.dtype = static_cast<DType>(16); },
       "element type 16 does not exist for parameter %x (\"train\")"},
      {[&](Module& m) { param(m, 0).type.encoding = static_cast<Encoding>(8); },
       "encoding 8 does not exist for parameter %x (\"train\")"},
      {[&](Module& m) { param(m, 0).type.shape[0] = Dim{12345}; },
       "dimension 12345 does not exist for parameter %x (\"train\")"},
      {[&](Module& m) { param(m, 0).type.shape[1] = m.dims.Constant(-1); },
       "dimension -1: expected 0 to 281474976710656 for parameter %x (\"train\")"},
      {[&](Module& m) { param(m, 0).type.shape[1] = m.dims.FromValue(1, m.dims.Constant(4)); },
       "dimension from(%1, 4): no op of this catalogue makes extents from values for parameter %x "
       "(\"train\")"},
      {[&](Module& m) {
         param(m, 2).type = {DType::kI8, Encoding::kQ8_0, {m.dims.Constant(33)}};
       },
       "i8:q8_0[33]: expected rows of whole blocks of 32 for parameter %lr (\"train\")"},
      {[&](Module& m) {
         param(m, 2).type = {DType::kI8, Encoding::kQ8_0, {}};
       },
       "i8:q8_0[]: an encoded tensor has rows, got rank 0 for parameter %lr (\"train\")"},
      {[&](Module& m) { node(m, 0).op = "matmull"; },
       "unknown op matmull, did you mean matmul? (node %0 matmull of \"train\" at train.py:7)"},
      {[&](Module& m) { node(m, 3).op = "max"; },
       "max is an alias that only the text form takes; the op is maximum (node %3 max of "
       "\"train\")"},
      {[&](Module& m) { node(m, 0).version = 2; },
       "matmul: expected version 1, got 2 (node %0 matmul of \"train\" at train.py:7)"},
      {[&](Module& m) { node(m, 3).calls = {1}; },
       "relu: expected no called functions, got 1 (node %3 relu of \"train\")"},
      {[&](Module& m) { node(m, 3).calls = {2}; },
       "relu: calls function 2, but \"train\" stands in a program of 2"},
      {[&](Module& m) { node(m, 3).calls = {0}; },
       "function \"train\" is in or behind a cycle of calls"},
      {[&](Module& m) { node(m, 3).pin = "a-b"; },
       "pinned variant: expected a letter or _, then letters, digits, _ and ., got \"a-b\" (node "
       "%3 relu of \"train\")"},
      {[&](Module& m) { node(m, 0).operands[0] = 4; },
       "matmul: operand 0 is %0, which is not defined before it (node %0 matmul of \"train\" at "
       "train.py:7)"},
      {[&](Module& m) { node(m, 0).operands[0] = -2; },
       "matmul: operand 0 is %-6, which is not defined before it (node %0 matmul of \"train\" at "
       "train.py:7)"},
      {[&](Module& m) { node(m, 0).operands[0] = INT32_MAX; },
       "matmul: operand 0 is %2147483643, which is not defined before it (node %0 matmul of "
       "\"train\" at train.py:7)"},
      {[&](Module& m) { node(m, 0).operands[0] = 3; },
       "matmul: operand 0 is %n, which is a dimension and no tensor (node %0 matmul of \"train\" "
       "at train.py:7)"},
      {[&](Module& m) { node(m, 0).operands[0] = kAbsent; },
       "matmul: operand x is absent; it is matmul(x: A, y: A) -> z: A (node %0 matmul of \"train\" "
       "at train.py:7)"},
      {[&](Module& m) { node(m, 3).operands.push_back(0); },
       "relu: expected 1 operands, got 2; it is relu(x: S) -> y: S (node %3 relu of \"train\")"},
      {[&](Module& m) { node(m, 6).segments = {1}; },
       "cat: segments hold 1 operands, got 2 (node %6 cat of \"train\")"},
      {[&](Module& m) { node(m, 6).segments = {}; },
       "cat: expected 1 segments, one for each operand, got 0; it is cat(xs...: T) -> y: T (node "
       "%6 cat of \"train\")"},
      {[&](Module& m) { node(m, 7).attrs[0].name = "axis"; },
       "layer_norm: unknown attribute axis; it takes dims, eps (node %7 layer_norm of \"train\")"},
      {[&](Module& m) { std::swap(node(m, 7).attrs[0], node(m, 7).attrs[1]); },
       "layer_norm: attribute dims: expected the row's order (node %7 layer_norm of \"train\")"},
      {[&](Module& m) { node(m, 7).attrs[1].value = int64_t{1}; },
       "layer_norm: attribute eps: expected float as the row has it, got int (node %7 layer_norm "
       "of \"train\")"},
      {[&](Module& m) { node(m, 7).attrs[0].value = std::string("1"); },
       "layer_norm: attribute dims: expected int, got string (node %7 layer_norm of \"train\")"},
      {[&](Module& m) { node(m, 5).attrs[0].value = Dims{Dim{777}}; },
       "zeros: attribute shape: dimension 777 does not exist (node %5 zeros of \"train\")"},
      {[&](Module& m) { node(m, 3).results.clear(); },
       "relu: expected 1 results, got 0 (node %3 relu of \"train\")"},
      {[&](Module& m) { node(m, 3).results[0].dtype = DType::kF16; },
       "relu: result 0: expected f32[?b, 2], got f16[?b, 2] (node %3 relu of \"train\")"},
      {[&](Module& m) { node(m, 3).results[0].shape[0] = m.dims.Constant(4); },
       "relu: result 0: expected f32[?b, 2], got f32[4, 2] (node %3 relu of \"train\")"},
      {[&](Module& m) { node(m, 3).results[0].shape[0] = Dim{4444}; },
       "dimension 4444 does not exist (node %3 relu of \"train\")"},
      {[&](Module& m) { param(m, 2).type.dtype = DType::kF16; },
       "mul: operand y: expected f32 as in x, got f16[] (node %1 mul of \"train\")"},
      {[&](Module& m) { m.blobs[0].pop_back(); },
       "constant: attribute value: expected 8 bytes for f32[2], got 7 (node %4 constant of "
       "\"train\")"},
      {[&](Module& m) { m.blobs.clear(); },
       "constant: attribute value: blob 0 is not among the program's 0 (node %4 constant of "
       "\"train\")"},
      {[&](Module& m) { result(m, 0).name = "w"; }, "result w is named twice (\"train\")"},
      {[&](Module& m) { result(m, 0).name = "1"; },
       "result: expected a letter or _, then letters, digits, _ and ., got \"1\" (\"train\")"},
      {[&](Module& m) { result(m, 0).value = 99; },
       "result y: %95 is no value of the function (\"train\")"},
      {[&](Module& m) { result(m, 0).value = kAbsent; },
       "result y: _ is no value of the function (\"train\")"},
      {[&](Module& m) { result(m, 0).value = 3; },
       "result y: %n is no value of the function (\"train\")"},
      // inout
      {[&](Module& m) { result(m, 1).name = "w2"; },
       "inout %w: expected a result of its name, which replaces it (\"train\")"},
      {[&](Module& m) { result(m, 1).value = 1; },
       "inout %w is returned itself; expected a node's value that replaces it, or a copy "
       "(\"train\")"},
      {[&](Module& m) { result(m, 0).value = 1; },
       "inout %w is returned itself; expected a node's value that replaces it, or a copy "
       "(\"train\")"},
      {[&](Module& m) { result(m, 1).value = 0; },
       "inout %w is replaced by %x; expected a node's value, such as a copy (\"train\")"},
      {[&](Module& m) { result(m, 1).value = 7; },
       "inout %w: expected f32[4, 2] as its type is, got f32[?b, 2] in %3 (\"train\")"},
      {[&](Module& m) { result(m, 0).value = 6; },
       "inout %w is replaced by %2, which is returned under another name too; return a copy there "
       "(\"train\")"},
      {[&](Module& m) {
         node(m, 3).operands[0] = 1;
         node(m, 3).results[0] = param(m, 1).type;
         node(m, 6).segments = {1};
         node(m, 6).operands = {4};
         node(m, 6).results[0] = node(m, 0).results[0];
         node(m, 7).results[0] = node(m, 0).results[0];
       },
       "inout %w is used after node %2 replaced it (node %3 relu of \"train\")"},
      // symbols
      {[&](Module& m) {
         m.functions[0].params.pop_back();
         for (Node& n : m.functions[0].nodes)
           for (ValueId& v : n.operands) v -= v > 3;
         for (Result& r : m.functions[0].results) r.value -= r.value > 3;
       },
       "dimension ?n cannot be bound: no parameter has it as an extent, and it is no parameter "
       "(\"train\")"},
  };
  EXPECT_EQ(Verify(Train()), "");
  for (const auto& [edit, want] : cases) {
    Module m = Train();
    edit(m);
    EXPECT_EQ(Verify(m), want);
    EXPECT_FALSE(Print(m).empty()) << "a wrong module can be printed";
  }
}

TEST(Verify, ConstraintsAreKeptOnce) {
  auto m = Parse(
      "program @f(%a: f32[?a, ?c], %b: f32[?b, ?d]) -> (y) {\n%0 = add(%a, %b)\n%1 = mul(%0, "
      "%b)\n%2 = add(%1, %a)\n"
      "%3 = matmul(%b, %b)\nreturn %3\n}",
      "t");
  ASSERT_TRUE(m.ok()) << m.status();
  const auto typing = VerifyModule(*m);
  ASSERT_TRUE(typing.ok()) << typing.status();
  const std::vector<DimConstraint>& c = typing->functions[0].constraints;
  ASSERT_EQ(c.size(), 3u);
  EXPECT_EQ(c[0].node, 0u);
  EXPECT_EQ(c[2].node, 3u);
  EXPECT_EQ(c[2].what, "inner dimensions");
  EXPECT_EQ(m->dims.ToString(c[2].a), "?d");
  EXPECT_EQ(m->dims.ToString(c[2].b), "?b");
}

TEST(Verify, InoutMayBeReadUpToTheNodeThatReplacesIt) {
  const auto verify = [](std::string_view body) {
    auto m = Parse(
        "program @f(inout %w: f32[2], %g: f32[2]) -> (w, y) {\n" + std::string(body) + "\n}", "t");
    return m.ok() ? Verify(*m) : MessageOf(m.status());
  };
  EXPECT_EQ(verify("%0 = neg(%w)\n%1 = sub(%w, %g)\n return %1, %0"), "");
  EXPECT_EQ(verify("%0 = neg(%w)\n%1 = mul(%0, %g)\n return %1, %0"), "")
      << "the old value need not reach the consuming node";
  EXPECT_EQ(verify("%0 = zeros() {shape = [2]}\n%1 = neg(%0)\n return %0, %1"), "")
      << "overwritten as a whole, read after";
  EXPECT_NE(verify("%0 = sub(%w, %g)\n%1 = neg(%w)\n return %0, %1"), "");
  EXPECT_NE(verify("%0 = sub(%w, %g)\n return %0, %0"), "");
}

TEST(Verify, EachLimitAtItsValueAndOneOver) {
  const Module m = Train();
  const std::pair<int64_t Limits::*, int64_t> used[] = {
      {&Limits::functions, 2},
      {&Limits::nodes, 9},
      {&Limits::operands, 13},
      {&Limits::params, 5},
      {&Limits::results, 5},
      {&Limits::rank, 2},
      {&Limits::attribute_bytes, (4 + 6) + (5 + 4) + (5 + 4) + (3 + 8) + (4 + 8) + (3 + 8)},
      {&Limits::symbols, 2},
      {&Limits::dims, static_cast<int64_t>(m.dims.nodes().size())},
      {&Limits::blobs, 1},
      {&Limits::blob_bytes, 8},
      {&Limits::name_bytes, 5},
      {&Limits::location_bytes, 10},
      {&Limits::tensor_bytes, 32},
  };
  EXPECT_EQ(std::size(used) + 1, LimitTable().size()) << "call_depth has a test of its own";
  for (const auto& [field, count] : used) {
    const auto row = std::find_if(LimitTable().begin(), LimitTable().end(),
                                  [&, f = field](const LimitRow& r) { return r.field == f; });
    ASSERT_NE(row, LimitTable().end());
    Limits limits;
    limits.*field = count;
    EXPECT_EQ(Verify(m, limits), "") << row->name;
    limits.*field = count - 1;
    Module copy = m;
    const Status over = VerifyModule(copy, limits).status();
    EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << row->name << ": " << over;
    EXPECT_NE(MessageOf(over).find(std::to_string(count)), std::string::npos)
        << row->name << ": " << over;
  }
}

// `depth` functions below the entry, each called by the one before it.
Module Chain(int depth) {
  Module m;
  for (int i = 0; i <= depth; ++i) {
    m.functions.push_back({.name = "f" + std::to_string(i)});
    if (i < depth)
      m.functions[i].nodes.push_back({.op = "zeros", .calls = {static_cast<uint32_t>(i + 1)}});
  }
  return m;
}

TEST(Verify, CallDepthAndCycles) {
  EXPECT_NE(Verify(Chain(32)).find("expected no called functions"), std::string::npos)
      << "deep enough, but zeros calls nothing";
  EXPECT_EQ(Verify(Chain(33)), "nested calls: expected at most 32, got 33");
  Module cycle = Chain(5);
  cycle.functions[5].nodes.push_back({.op = "zeros", .calls = {2}});
  EXPECT_EQ(Verify(cycle), "function \"f2\" is in or behind a cycle of calls");
  // Paths whose number would be exponential if they were followed one by one.
  Module wide = Chain(32);
  for (Function& f : wide.functions) {
    for (Node& n : f.nodes) n.calls.resize(1000, n.calls[0]);
  }
  EXPECT_EQ(Verify(wide),
            "nodes, with those of called functions at each call: expected at most 65536, got 66067 "
            "(\"f29\")");
}

TEST(Verify, WhatCallsTakeAndGive) {
  const auto verify = [](const std::string& nodes, const std::string& functions) {
    auto m =
        Parse("program @f(%n: i64[], %p: bool[], %x: f32[?b], inout %w: f32[2]) -> (w: f32[2]) { " +
                  nodes + " %copy = copy(%w) return %copy }\n" + functions,
              "t");
    return m.ok() ? Verify(*m) : MessageOf(m.status());
  };
  const std::string step =
      "function @step(%i: i64[], %x: f32[?b]) -> (x: f32[?b]) { %0 = neg(%x) return %0 }";
  EXPECT_EQ(verify("%0 = repeat(%n, [%x], []) calls(@step)", step), "");
  const struct {
    std::string nodes, functions, message;
  } wrong[] = {
      // clang-format off
      {"%0 = repeat(%n, [%x], [])", "", "repeat: expected 1 (body) called functions, got 0"},
      {"%0 = neg(%x) calls(@step)", step, "neg: expected no called functions, got 1"},
      {"%0 = repeat(%n, [%w], []) calls(@step)", step, "repeat: body @step: parameter %x: expected f32[2] as carried has, got f32[?b]"},
      {"%0 = repeat(%n, [%x], [%x]) calls(@step)", step, "repeat: body @step: expected 3 parameters, got 2"},
      // clang-format on
      {"%0, %1 = repeat(%n, [%x, %x], []) calls(@step)",
       "function @step(%i: i64[], %x: f32[?b], %y: f32[?b]) -> (x: f32[?b]) { return %x }",
       "repeat: body @step: expected 2 results, got 1"},
      {"%0 = repeat(%n, [%x], []) calls(@step)",
       "function @step(%i: i32[], %x: f32[?b]) -> (x: f32[?b]) { return %x }",
       "repeat: body @step: parameter %i: expected i64[] as the iteration has, got i32[]"},
      {"%0 = repeat(%n, [%x], []) calls(@step)",
       "function @step(%i: i64[], %x: f32[?b]) -> (x: bool[?b]) { %0 = isnan(%x) return %0 }",
       "repeat: body @step: result x: expected f32[?b], got bool[?b]"},
      {"%0 = repeat(%n, [%x], [%x]) calls(@step)",
       "function @step(%i: i64[], %x: f32[?b], inout %y: f32[?b]) -> (x: f32[?b], y: f32[?b]) { %0 "
       "= neg(%y) return %x, %0 }",
       "repeat: body @step: parameter %y is inout; only what a loop's body carries may be"},
      {"%0, %1 = repeat(%n, [%x, %x], []) calls(@step)",
       "function @step(%i: i64[], inout %x: f32[?b], %y: f32[?b]) -> (y: f32[?b], x: f32[?b]) { %0 "
       "= neg(%x) return %y, %0 }",
       "repeat: body @step: inout %x: expected result 0, of its place, to replace it, got result "
       "1"},
      {"%0 = repeat(%n, [%x], []) calls(@step)",
       "function @step(%i: i64[], dim %b: ?b) -> () { return }",
       "repeat: body @step: parameter %b is a dimension; a called function has its callers' "
       "symbols"},
      {"%0 = while([%x], []) calls(@c, @c) {max_trips = 3}",
       "function @c(%x: f32[?b]) -> (c: f32[?b]) { return %x }",
       "while: condition @c: result c: expected bool[], got f32[?b]"},
      {"%0 = while([%x], []) calls(@c, @c) {max_trips = -1}",
       "function @c(%x: f32[?b]) -> (c: f32[?b]) { return %x }",
       "while: max_trips: expected 0 or more, got -1"},
      {"%0 = if(%p, [%x]) calls(@a, @b) -> (f32[?b])",
       "function @a(%x: f32[?b]) -> (x: f32[?b]) { return %x } function @b(%x: f32[?b]) -> () { "
       "return }",
       "if: otherwise @b: expected 1 results, got 0"},
      {"%0 = if(%x, [%x]) calls(@a, @a) -> (f32[?b])",
       "function @a(%x: f32[?b]) -> (x: f32[?b]) { return %x }",
       "if: operand condition: expected bool, got f32[?b]"},
      {"%0 = repeat(%n, [%x], []) calls(@step)",
       "function @step(%i: i64[], %x: f32[?b]) -> (x: f32[?b]) { %0 = zeros() {shape = [?c], dtype "
       "= f32} return %x }",
       "dimension ?c cannot be bound"},
      {"emit(%x) {name = \"\"}", "", "emit: name: expected a name"},
  };
  for (const auto& [nodes, functions, message] : wrong)
    EXPECT_NE(verify(nodes, functions).find(message), std::string::npos)
        << nodes << "\n"
        << functions << "\n"
        << verify(nodes, functions);
}

TEST(Verify, SizesThatOverflow) {
  const auto verify = [](std::string_view shape) {
    auto m = Parse("program @f(%x: f32[" + std::string(shape) + "]) -> () { return }", "t");
    return m.ok() ? Verify(*m) : MessageOf(m.status());
  };
  EXPECT_EQ(verify("65536, 65536, 65536"),
            "f32[65536, 65536, 65536]: expected at most 281474976710656 bytes, got "
            "1125899906842624 for parameter %x (\"f\")");
  EXPECT_EQ(verify("65536, 65536, 16384"), "");
  EXPECT_EQ(verify("65536, 65536, 65536, 65536, 65536"),
            "f32[65536, 65536, 65536, 65536, 65536]: expected at most 281474976710656 bytes, got "
            "more than 2^63 for parameter %x "
            "(\"f\")");
  EXPECT_EQ(verify("0, 65536, 65536, 65536"), "") << "an empty tensor is small";
  EXPECT_NE(verify("?b, 65536, 65536, 65536"), "") << "too large for all but an empty batch";
  EXPECT_EQ(verify("281474976710657"),
            "dimension 281474976710657: expected 0 to 281474976710656 for parameter %x (\"f\")");
  EXPECT_EQ(verify("?b, 4096*?c+-1"),
            "dimension ?c cannot be bound: no parameter has it as an extent, and it is no "
            "parameter (\"f\")");
  // A node's result is too large, though its operands fit.
  auto m = Parse(
      "program @f(%x: f32[65536, 65536]) -> () {\n%0 = tile(%x) {repeats = [65536, 1, 1]}\nreturn "
      "}",
      "t");
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(Verify(*m),
            "f32[65536, 65536, 65536]: expected at most 281474976710656 bytes, got "
            "1125899906842624 (node %0 tile of \"f\")");
}

TEST(Verify, MessagesStayShort) {
  Module m = Train();
  m.functions[0].nodes[0].op = std::string(100000, '\n');
  m.functions[0].nodes[0].location = std::string(1000, '\xff');
  EXPECT_LT(Verify(m).size(), 2000u);
  m = Train();
  m.functions[0].nodes[0].attrs.push_back({std::string(100000, 'x'), int64_t{1}});
  EXPECT_LT(Verify(m).size(), 2000u);
  m = Train();
  Node& zeros = m.functions[0].nodes[5];
  zeros.attrs[0].value = Dims(1000, m.dims.Constant(123456789));
  EXPECT_LT(Verify(m).size(), 2000u);
}

}  // namespace
}  // namespace opwire

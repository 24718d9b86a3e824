// Programs built op by op: their nodes, and how errors stick.
#include "ir/program/builder.h"

#include <gtest/gtest.h>

#include "ir/text/text.h"

namespace opwire {
namespace {

TEST(Builder, FirstErrorSticksAndSaysWhere) {
  ModuleBuilder b;
  FunctionBuilder f = b.Function("f");
  const Value x = f.In("x", DType::kF32, {4, 8});
  const Value bad = f.Op("matmul", {x, x});
  const Value after = f.Op("relu", {bad});
  f.Op("nothing", {after});
  f.Return("y", after);
  const auto m = b.Finish();
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(MessageOf(m.status()),
            "matmul: inner dimensions differ: [4, 8] x [4, 8] (8 and 4) (node %0 of \"f\")");
}

TEST(Builder, MakesWhatTheTextSays) {
  ModuleBuilder b;
  FunctionBuilder f = b.Function("train");
  const Dim n = f.Symbol("n");
  const Value x = f.In("x", DType::kF32, {f.Symbol("b", 1, 64, 2), 4});
  const Value w = f.Inout("w", DType::kF32, {4, 2});
  f.DimParam("n", n);
  const Value y = f.Op("matmul", {x, w});
  f.Pin("cpu");
  f.Location("a.py:1");
  f.Return("y", f.OpWithLists("cat", {{y, y}}, {{"dim", 1}}));
  f.Return("w", f.Op("mul", {w, f.Scalar(DType::kF32, 0.5)}));
  f.Return("c", f.Op("constant", {},
                     {{"type", TensorType{.dtype = DType::kU8, .shape = {f.dims().Constant(2)}}},
                      {"value", f.Blob("ab")}}));
  f.Return("l", f.Op("layer_norm", {x}));
  f.Return("z", f.Op("zeros", {}, {{"shape", Dims{n}}, {"dtype", DType::kI64}}));
  EXPECT_EQ(ToString(f.TypeOf(y), f.dims()), "f32[?b, 2]");
  EXPECT_EQ(f.TypeOf(Value{}).dtype, DType::kInvalid);
  const auto m = b.Finish();
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(Print(*m), R"(dim ?n
dim ?b in [1, 64] multiple 2

program @train(%x: f32[?b, 4], inout %w: f32[4, 2], dim %n: ?n) -> (y: f32[?b, 4], w: f32[4, 2], c: u8[2], l: f32[?b, 4], z: i64[?n]) {
  %0 = matmul@cpu(%x, %w) loc("a.py:1")
  %1 = cat([%0, %0]) {dim = 1}
  %2 = full() {value = 0.5, dtype = f32}
  %3 = mul(%w, %2)
  %4 = constant() {type = u8[2], value = #0}
  %5 = layer_norm(%x, _, _)
  %6 = zeros() {shape = [?n], dtype = i64}
  return %1, %3, %4, %5, %6
}

blob 0 =
  "6162"
)");
}

TEST(Builder, WrongUsesAreErrors) {
  const auto error = [](auto use) {
    ModuleBuilder b;
    FunctionBuilder f = b.Function("f");
    const Value x = f.In("x", DType::kF32, {4});
    use(f, x);
    return MessageOf(b.Finish().status());
  };
  EXPECT_EQ(error([](FunctionBuilder& f, Value x) { f.Return("y", x); }), "");
  EXPECT_EQ(error([](FunctionBuilder& f, Value x) { f.Op("rleu", {x}); }),
            "unknown op rleu, did you mean relu, gelu, le?");
  EXPECT_EQ(error([](FunctionBuilder& f, Value) { f.Op("relu", {Value{7}}); }),
            "relu: operand 7 is no value of function f (node %0 of \"f\")");
  EXPECT_EQ(error([](FunctionBuilder& f, Value) { f.Op("relu", {Value{}}); }),
            "relu: operand x is absent; it is relu(x: S) -> y: S (node %0 of \"f\")");
  EXPECT_EQ(error([](FunctionBuilder& f, Value x) { f.Op("cat", {x}); }),
            "cat: expected 1 segments, one for each operand, got 0; it is cat(xs...: T) -> y: T "
            "(node %0 of \"f\")");
  EXPECT_EQ(error([](FunctionBuilder& f, Value x) {
              f.Op("relu", {x});
              f.In("late", DType::kF32, {});
            }),
            "f: parameter late comes after the first node");
  EXPECT_EQ(error([](FunctionBuilder& f, Value) { f.Symbol("b", 5, 1); }),
            "dimension ?b: expected 0 <= lower <= upper <= 281474976710656 and multiple >= 1, got "
            "5, 1, 1");
  EXPECT_EQ(error([](FunctionBuilder& f, Value) { f.Return("y", Value{}); }),
            "result y: _ is no value of the function (\"f\")");
}

constexpr const char* kLayer = R"(
dim ?b
program @layer(%x: f32[?b, 4], %w: f32[4, 2], inout %n: i64[]) -> (y: f32[?b, 2], n: i64[], z: f32[2*?b]) {
  %0 = matmul@cpu(%x, %w) loc("layer.py:1")
  %1 = constant() {type = f32[2], value = #0}
  %2 = add(%0, %1)
  %3 = zeros() {shape = [2*?b], dtype = f32}
  %4 = full() {value = 1.0, dtype = i64}
  %5 = add(%n, %4)
  return %2, %5, %3
}
blob 0 =
  "0000803f00000040"
)";

TEST(Builder, InlinesAnotherModulesEntry) {
  const Module layer = Parse(kLayer, "layer.opw").value();
  ModuleBuilder b;
  FunctionBuilder f = b.Function("twice");
  const Dim n = f.Symbol("n");
  f.Blob("mine");
  const Value x = f.In("x", DType::kF32, {n, 4}), w = f.In("w", DType::kF32, {4, 2}),
              count = f.In("count", DType::kI64, {}), y = f.In("y", DType::kF32, {3, 4});
  const std::vector<Value> first = f.Inline(layer, {x, w, count}),
                           second = f.Inline(layer, {y, w, first[1]});
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(ToString(f.TypeOf(first[2]), f.dims()), "f32[2*?n]");
  EXPECT_EQ(ToString(f.TypeOf(second[2]), f.dims()), "f32[6]");
  f.Return("y", first[0]);
  f.Return("z", second[0]);
  f.Return("count", second[1]);
  const auto m = b.Finish();
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->functions[0].nodes[0].pin, "cpu");
  EXPECT_EQ(m->functions[0].nodes[0].location, "layer.py:1");
  ASSERT_EQ(m->blobs.size(), 3u);
  EXPECT_EQ(m->blobs[1], layer.blobs[0]);
}

TEST(Builder, InlinesWhatTheEntryCalls) {
  const Module loop = Parse(R"(
program @loop(%n: i64[], %x: f32[?b, 4], %c: bool[]) -> (y: f32[?b, 4]) {
  %0 = repeat(%n, [%x], [%c]) calls(@step)
  %1 = if(%c, [%0]) calls(@double, @shift) -> (f32[?b, 4])
  return %1
}
function @step(%t: i64[], inout %x: f32[?b, 4], %c: bool[]) -> (x: f32[?b, 4]) {
  %0 = if(%c, [%x]) calls(@double, @shift) -> (f32[?b, 4])
  %1 = mul(%0, %0)
  return %1
}
function @double(%x: f32[?b, 4]) -> (y: f32[?b, 4]) {
  %0 = add(%x, %x)
  return %0
}
function @shift(%x: f32[?b, 4]) -> (y: f32[?b, 4]) {
  %0 = constant() {type = f32[4], value = #0}
  %1 = add(%x, %0)
  %2 = full() {shape = [?b, 4], value = 2.0}
  %3 = add(%1, %2)
  return %3
}
blob 0 =
  "0000803f0000004000000040000000c0"
)",
                            "loop.opw")
                          .value();
  ModuleBuilder b;
  FunctionBuilder f = b.Function("f");
  f.Blob("mine");
  const Value n = f.In("n", DType::kI64, {}), c = f.In("c", DType::kBool, {}),
              x = f.In("x", DType::kF32, {f.Symbol("k"), 4}), y = f.In("y", DType::kF32, {3, 4});
  f.Return("x", f.Inline(loop, {n, x, c})[0]);
  f.Return("y", f.Inline(loop, {n, y, c})[0]);
  const auto m = b.Finish();
  ASSERT_TRUE(m.ok()) << m.status();
  std::vector<std::string> names;
  for (const Function& function : m->functions) names.push_back(function.name);
  EXPECT_EQ(names, (std::vector<std::string>{"f", "loop.double", "loop.shift", "loop.step",
                                             "loop.double.2", "loop.shift.2", "loop.step.2"}));
  const std::string text = Print(*m);
  EXPECT_NE(text.find("%2 = repeat(%n, [%y], [%c]) calls(@loop.step.2)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("function @loop.step(%t: i64[], inout %x: f32[?k, 4], %c: bool[])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("%0 = if(%c, [%x]) calls(@loop.double.2, @loop.shift.2) -> (f32[3, 4])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("%2 = full() {shape = [3, 4], value = 2.0}"), std::string::npos) << text;
  ASSERT_EQ(m->blobs.size(), 3u);
  EXPECT_EQ(m->blobs[2], loop.blobs[0]);
}

TEST(Builder, InlineSaysWhatDoesNotFit) {
  const auto error = [](const std::string& text, auto use) {
    const Module other = Parse(text, "t").value();
    ModuleBuilder b;
    FunctionBuilder f = b.Function("f");
    const Value x = f.In("x", DType::kF32, {3, 4}), w = f.In("w", DType::kF32, {4, 2}),
                n = f.In("n", DType::kI64, {});
    EXPECT_EQ(use(f, other, x, w, n).size(), other.functions[0].results.size());
    return MessageOf(b.Finish().status());
  };
  const auto all = [](FunctionBuilder& f, const Module& m, Value x, Value w, Value n) {
    return f.Inline(m, {x, w, n});
  };
  EXPECT_EQ(error(kLayer,
                  [](FunctionBuilder& f, const Module& m, Value x, Value w, Value) {
                    return f.Inline(m, {x, w});
                  }),
            "inline of @layer: expected 3 values, got 2");
  EXPECT_EQ(error(kLayer,
                  [](FunctionBuilder& f, const Module& m, Value x, Value, Value n) {
                    return f.Inline(m, {x, x, n});
                  }),
            "inline of @layer: parameter %w: expected f32[4, 2], got f32[3, 4]");
  EXPECT_EQ(error("program @g(%x: f32[?a, ?a], %w: f32[4, 2], %n: i64[]) -> (y: f32[?a, ?a]) {\n  "
                  "%0 = neg(%x)\n  return %0\n}\n",
                  all),
            "inline of @g: parameter %x: expected f32[3, 3], got f32[3, 4]");
  EXPECT_EQ(error("program @g(dim %x: ?k, %w: f32[4, 2], %n: i64[]) -> (y: f32[4, 2]) {\n  %0 = "
                  "neg(%w)\n  return %0\n}\n",
                  all),
            "inline of @g: parameter %x is a dimension");
}

}  // namespace
}  // namespace opwire

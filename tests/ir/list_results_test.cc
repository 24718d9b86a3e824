// Rows whose results are lists: how many results a node has, what rules say of each, and programs
// of them in every form.
#include <gtest/gtest.h>

#include "ir/ops/catalogue.h"
#include "ir/ops/definitions.h"
#include "ir/program/builder.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"

namespace opwire {
namespace {

definitions::Spec Spec(std::string_view name, std::string_view signature,
                       definitions::InferRule infer) {
  return {.name = name,
          .signature = signature,
          .infer = std::move(infer),
          .cost = definitions::PerResult(1),
          .family = "test",
          .doc = "A row of tests."};
}

// Result k of the lists has the shape of the first list's value k; `n` counts them.
Status InferMove(InferContext& c) {
  for (int r : {0, 2}) {
    const std::span<TensorType> list = c.ResultList(r);
    const std::span<const TensorType* const> from = c.List(r == 0 ? 1 : 2);
    for (size_t k = 0; k < list.size(); ++k) list[k].shape = from[k]->shape;
  }
  c.Result(1).shape = {c.dims().Constant(static_cast<int64_t>(c.List(1).size()))};
  return absl::OkStatus();
}

const OpCatalogue& Ops() {
  static const auto* const ops = new OpCatalogue(
      {definitions::Make(
           Spec("move", "by: T, xs...: T, more...: U, last?: f32 -> ys...: T, n: i64, more...: U",
                InferMove)),
       definitions::Make(Spec("each", "xs...: T -> ys...: T",
                              [](InferContext& c) {
                                for (size_t k = 0; k < c.List(0).size(); ++k)
                                  c.ResultList(0)[k].shape = c.List(0)[k]->shape;
                                return absl::OkStatus();
                              }))},
      {});
  return *ops;
}

constexpr std::string_view kProgram =
    R"(program @f(%s: f32[], %a: f32[?n], %b: f32[3, 2], %h: f16[4]) -> (z: f32[3, 2], m: f16[4], n: i64[2]) {
  %0, %1, %2, %3 = move(%s, [%a, %b], [%h], _)
  %4 = each([%1])
  return %4, %3, %2
}
)";

StatusOr<Module> ParseText(std::string_view text) { return Parse(text, "t", {.ops = Ops()}); }

std::string ErrorOf(std::string_view node) {
  const auto m = ParseText("program @f(%a: f32[2], %h: f16[4]) -> (y) {\n" + std::string(node) +
                           "\nreturn %0\n}");
  return m.ok() ? "" : MessageOf(m.status()).substr(MessageOf(m.status()).find(": ") + 2);
}

TEST(ListResults, SignatureSaysWhichAreLists) {
  EXPECT_EQ(Ops().Find("each")->Signature(), "each(xs...: T) -> ys...: T");
  EXPECT_EQ(Ops().Find("move")->Signature(),
            "move(by: T, xs...: T, more...: U, last?: f32) -> (ys...: T, n: i64, more...: U)");
}

TEST(ListResults, AreAsLongAsTheListOfTheirNameElseTheFirst) {
  const OpDef& row = *Ops().Find("move");
  EXPECT_EQ(row.LengthOf(0), 1);
  EXPECT_EQ(row.LengthOf(2), 2);
  const std::vector<uint32_t> starts = row.OperandStarts(std::vector<uint32_t>{1, 3, 0, 1});
  EXPECT_EQ(starts, (std::vector<uint32_t>{0, 1, 4, 4, 5}));
  EXPECT_EQ(row.ResultStarts(starts), (std::vector<uint32_t>{0, 3, 4, 4}));
  EXPECT_EQ(row.CountResults(starts.data()), 4u);
  const OpDef& add = *Catalogue().Find("add");
  EXPECT_EQ(add.CountResults(add.OperandStarts({}).data()), 1u);
}

TEST(ListResults, PrintParseSerialiseAndVerify) {
  auto m = ParseText(kProgram);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(Print(*m, Ops()).substr(Print(*m, Ops()).find("program")), kProgram);
  const std::string bytes = Serialise(*m);
  auto back = Deserialise({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(Equal(*m, *back));
  const auto typing = VerifyModule(*back, {}, Ops());
  EXPECT_TRUE(typing.ok()) << typing.status();
}

TEST(ListResults, VerifierCountsAndCompares) {
  const auto error = [](auto change) {
    Module m = ParseText(kProgram).value();
    change(m.functions[0].nodes[0]);
    return MessageOf(VerifyModule(m, {}, Ops()).status());
  };
  EXPECT_EQ(error([](Node& n) { n.results.pop_back(); }),
            "move: expected 4 results, got 3 (node %0 move of \"f\")");
  EXPECT_EQ(error([](Node& n) { n.results[3].dtype = DType::kF32; }),
            "move: result 3: expected f16[4], got f32[4] (node %0 move of \"f\")");
  EXPECT_EQ(error([](Node& n) {
              n.segments = {1, 1, 2, 1};
            }),
            "move: operand more: expected f32 as in more, got f16[4] (node %0 move of \"f\")");
}

TEST(ListResults, ErrorsOfNodes) {
  EXPECT_EQ(ErrorOf("%0 = each([%a, %a])"), "each: expected 2 results, got 1 names");
  EXPECT_EQ(ErrorOf("%0 = each([])"),
            "each: operand xs: expected a value at least, for there is a result for each; it is "
            "each(xs...: T) -> ys...: T");
  EXPECT_EQ(ErrorOf("%0, %1 = each([%a, %h])"),
            "each: operand xs: expected f32 as in xs, got f16[4]");
  EXPECT_EQ(ErrorOf("%0 = move(%a, [], [])"), "") << "the count is a result";
}

TEST(ListResults, BuilderGivesThemAll) {
  ModuleBuilder b(Ops());
  FunctionBuilder f = b.Function("f");
  const Value a = f.In("a", DType::kF32, {2}), c = f.In("c", DType::kF32, {3});
  const std::vector<Value> all = f.OpsWithLists("move", {{a}, {a, c}, {c}});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(ToString(f.TypeOf(all[1]), f.dims()), "f32[3]");
  f.Return("n", all[2]);
  EXPECT_TRUE(b.Finish().ok());

  ModuleBuilder bad(Ops());
  FunctionBuilder g = bad.Function("g");
  const Value h = g.In("h", DType::kF16, {2}), i = g.In("i", DType::kF32, {2});
  EXPECT_EQ(g.OpsWithLists("move", {{h}, {h, i}, {i}}).size(), 4u)
      << "an op that fails has as many results, too";
  EXPECT_EQ(MessageOf(bad.Finish().status()),
            "move: operand xs: expected f16 as in by, got f32[2] (node %0 of \"g\")");

  ModuleBuilder one(Ops());
  FunctionBuilder k = one.Function("k");
  const Value x = k.In("x", DType::kF32, {2});
  k.Return("y", k.OpWithLists("each", {{x, x}}));
  EXPECT_EQ(MessageOf(one.Finish().status()), "each: expected an op of one result, it has 2");
}

TEST(ListResultsDeath, NeedAList) {
  EXPECT_DEATH(
      OpCatalogue({definitions::Make(Spec("bad", "x: T -> ys...: T", definitions::SameAsFirst))},
                  {}),
      "a list among the operands");
  definitions::Spec body = Spec("bad", "xs...: T -> ys...: T", definitions::SameAsFirst);
  body.body = expr::In(0);
  EXPECT_DEATH(OpCatalogue({definitions::Make(body)}, {}), "one result of a body");
}

}  // namespace
}  // namespace opwire

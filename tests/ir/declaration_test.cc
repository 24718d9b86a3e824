// Declarations of ops that are not built in: their signatures, the rows they become, and their
// JSON.
#include "ir/ops/declaration.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/program/builder.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"

namespace opwire {
namespace {

OpDeclaration Declare(const std::string& signature) {
  return {.name = "user.own", .signature = signature, .types = {{"T", kFloats}}};
}

// The types of the results for these operands, or the error's message.
std::string ResultsOf(const OpDeclaration& d, const std::vector<std::string>& params,
                      const std::string& attrs = "") {
  const auto row = RowOf(d);
  if (!row.ok()) return MessageOf(row.status());
  const auto ops = ExtendCatalogue({*row});
  std::string text = "program @p(", operands;
  for (size_t i = 0; i < params.size(); ++i) {
    text += (i ? ", %p" : "%p") + std::to_string(i) + ": " + params[i];
    operands += (i ? ", %p" : "%p") + std::to_string(i);
  }
  text += ") -> (";
  std::string names;
  for (size_t r = 0; r < row->results.size(); ++r) {
    text += (r ? ", r" : "r") + std::to_string(r);
    names += (r ? ", %" : "%") + std::to_string(r);
  }
  text +=
      ") {\n  " + names + " = user.own(" + operands + ")" + attrs + "\n  return " + names + "\n}\n";
  auto module = Parse(text, "t", {.ops = **ops});
  if (!module.ok()) return MessageOf(module.status());
  const auto typing = VerifyModule(*module, {}, **ops);
  if (!typing.ok()) return MessageOf(typing.status());
  std::string out;
  for (const TensorType& t : module->functions[0].nodes[0].results)
    out += (out.empty() ? "" : " ") + ToString(t, module->dims);
  for (const DimConstraint& c : typing->functions[0].constraints)
    out += " if " + module->dims.ToString(c.a) + " == " + module->dims.ToString(c.b);
  EXPECT_TRUE(Equal(*Parse(Print(*module, **ops), "t", {.ops = **ops}), *module));
  return out;
}

TEST(Declaration, EqualNamesAreEqualExtents) {
  const OpDeclaration d = Declare("x: T[M, K], w: T[K, N] -> y: T[M, N]");
  EXPECT_EQ(ResultsOf(d, {"f32[3, 4]", "f32[4, 5]"}), "f32[3, 5]");
  EXPECT_EQ(ResultsOf(d, {"bf16[?b, 4]", "bf16[4, ?n]"}), "bf16[?b, ?n]");
  EXPECT_EQ(ResultsOf(d, {"f32[3, ?k]", "f32[?j, 5]"}), "f32[3, 5] if ?k == ?j");
  EXPECT_NE(ResultsOf(d, {"f32[3, 4]", "f32[5, 6]"})
                .find("extents K of w differ: [3, 4] x [5, 6] (4 and 5)"),
            std::string::npos);
  EXPECT_NE(ResultsOf(d, {"f32[3]", "f32[5, 6]"}).find("operand x: expected rank 2, got f32[3]"),
            std::string::npos);
  EXPECT_NE(ResultsOf(d, {"i32[3, 4]", "i32[4, 5]"})
                .find("operand x: expected f64, f32, f16, bf16, got i32[3, 4]"),
            std::string::npos);
  EXPECT_NE(ResultsOf(d, {"f32[3, 4]", "f64[4, 5]"}).find("operand w: expected f32 as in x"),
            std::string::npos);
}

TEST(Declaration, LeadingExtentsAreTheSameEverywhere) {
  const OpDeclaration d = Declare("x: T[..., N], bias: T[N] -> y: T[..., N], norm: f32[...]");
  EXPECT_EQ(ResultsOf(d, {"f32[2, 3, 4]", "f32[4]"}), "f32[2, 3, 4] f32[2, 3]");
  EXPECT_EQ(ResultsOf(d, {"f32[4]", "f32[4]"}), "f32[4] f32[]");
  EXPECT_NE(ResultsOf(d, {"f32[]", "f32[4]"}).find("operand x: expected rank 1 or more, got f32[]"),
            std::string::npos);
  const OpDeclaration two = Declare("x: T[...], y: T[...] -> z: T[...]");
  EXPECT_NE(ResultsOf(two, {"f32[2, 3]", "f32[2, 4]"}).find("leading extents of y differ"),
            std::string::npos);
}

TEST(Declaration, ExtentsMayBeExpressions) {
  EXPECT_EQ(
      ResultsOf(
          Declare("x: T[M, N] -> y: T[2 * M + 1, (M + N) / 2, N % 3], z: T[min(M, 4), max(N, 9)]"),
          {"f32[5, 7]"}),
      "f32[11, 6, 1] f32[4, 9]");
  OpDeclaration d = Declare("x: T[M, 2 * M], s: T[] -> y: T[M, k]");
  d.attrs = {{"k", AttrKind::kInt, AttrValue(int64_t{3}), "How many."}};
  EXPECT_EQ(ResultsOf(d, {"f32[5, 10]", "f32[]"}), "f32[5, 3]");
  EXPECT_EQ(ResultsOf(d, {"f32[?m, 10]", "f32[]"}, " {k = 8}"), "f32[?m, 8] if 2*?m == 10");
  EXPECT_NE(ResultsOf(d, {"f32[5, 10]", "f32[]"}, " {k = -1}").find("k: expected 0 to"),
            std::string::npos);
}

TEST(Declaration, ResultTypesMayComeFromAnAttribute) {
  OpDeclaration d = Declare("x: T[N] -> y: U[N]");
  d.types.push_back({"U", kFloats});
  EXPECT_NE(ResultsOf(d, {"f32[2]"})
                .find("y: expected the type of an operand that is always there, or an attribute of "
                      "kind dtype, got U"),
            std::string::npos);
  d.attrs = {{"U", AttrKind::kDType, AttrValue(DType::kF16), "What it gives."}};
  EXPECT_EQ(ResultsOf(d, {"f32[2]"}), "f16[2]");
  EXPECT_NE(ResultsOf(d, {"f32[2]"}, " {U = i32}")
                .find("result y: expected f64, f32, f16, bf16, got i32"),
            std::string::npos);
}

TEST(Declaration, ListsAndAbsentOperands) {
  const OpDeclaration list = Declare("xs...: T[M, N] -> y: T[M, N]");
  const auto row = RowOf(list);
  ASSERT_TRUE(row.ok()) << row.status();
  const auto ops = ExtendCatalogue({*row});
  ModuleBuilder m(**ops);
  FunctionBuilder f = m.Function("p");
  const Value a = f.In("a", DType::kF32, {2, 3}), b = f.In("b", DType::kF32, {2, 3});
  f.Return("y", f.OpWithLists("user.own", {{a, b}}));
  EXPECT_TRUE(m.Finish().ok());
  for (const char* shapes : {"xs...: T[M, N] -> y: T[M, N]", "xs...: T[...] -> y: T[...]"}) {
    const OpDef alone = *RowOf(Declare(shapes));
    DimTable dims;
    const uint32_t none[] = {0};
    EXPECT_NE(MessageOf(InferTypes(alone, dims, {}, none, {}).status()).find("list"),
              std::string::npos)
        << shapes;
  }
  const OpDeclaration optional = Declare("x: T[M, N], bias?: T[N] -> y: T[M, N]");
  EXPECT_EQ(ResultsOf(optional, {"f32[2, 3]"}), "f32[2, 3]");
  EXPECT_EQ(ResultsOf(optional, {"f32[2, 3]", "f32[3]"}), "f32[2, 3]");
  EXPECT_NE(ResultsOf(optional, {"f32[2, 3]", "f32[4]"}).find("extents N of bias differ"),
            std::string::npos);
}

TEST(Declaration, WhatIsWrongIsSaid) {
  const auto error = [](OpDeclaration d) {
    const auto row = RowOf(d);
    return row.ok() ? "accepted" : MessageOf(row.status());
  };
  const auto of = [&](const std::string& signature) { return error(Declare(signature)); };
  EXPECT_EQ(of("x: T[N]"), "signature: column 8: expected ',' or '->', got the end");
  EXPECT_EQ(of("x T[N] -> y: T[N]"), "signature: column 3: expected ':', got T[N] -> y: T[N]");
  EXPECT_EQ(of("x: T -> y: T[N]"),
            "signature: column 6: expected '[' and the extents, got -> y: T[N]");
  EXPECT_EQ(of("x: T[N -> y: T[N]"),
            "signature: column 8: expected ',', an operator or ']', got -> y: T[N]");
  EXPECT_EQ(of("x: T[N] -> "), "signature: column 12: expected a result's name, got the end");
  EXPECT_EQ(of("x: Q[N] -> y: Q[N]"),
            "signature: x: expected an element type or a name in \"types\", got Q");
  EXPECT_EQ(of("x: T[N] -> y: T[M]"),
            "signature: y: expected an extent of an operand that is always there, or an attribute "
            "of kind int, got M");
  EXPECT_EQ(of("x: T[2 * N] -> y: T[1]"),
            "signature: x: expected an extent of an operand that is always there, or an attribute "
            "of kind int, got N");
  EXPECT_EQ(
      of("x: T[N] -> y: T[...]"),
      "signature: y: '...' stands for the leading extents of an operand that is always there");
  EXPECT_EQ(of("x: T[N], x: T[N] -> y: T[N]"), "signature: x stands twice");
  EXPECT_EQ(of("x: T[99999999999999999999] -> y: T[1]").substr(0, 50),
            "signature: column 6: expected a number of at most ");
  EXPECT_EQ(of("x: T[N]; rm -> y: T[N]"),
            "signature: column 8: expected ',' or '->', got ; rm -> y: T[N]");
  OpDeclaration d = Declare("x: T[N] -> y: T[N]");
  EXPECT_EQ(error(d), "accepted");
  for (const char* name :
       {"own", "user.", "user.a.b", "user.a b", "user.a;rm", "user.../x", "add"}) {
    d.name = name;
    EXPECT_NE(error(d).find("expected user. and letters"), std::string::npos) << name;
  }
  d = Declare("x: T[N] -> y: T[N]");
  d.types.push_back({"V", kFloats});
  EXPECT_EQ(error(d), "types: V is not in the signature");
  d = Declare("x: T[N], i: T[B] -> y: T[N]");
  d.indices = {{"i", "N"}};
  EXPECT_EQ(error(d), "indices: i: expected i32 or i64, got T");
  d = Declare("x: T[N], i: i64[B] -> y: T[B]");
  d.indices = {{"i", "V"}};
  EXPECT_EQ(error(d), "indices: i: the signature has no extent V");
  d.indices = {{"i", "N"}};
  ASSERT_EQ(error(d), "accepted");
  EXPECT_EQ(RowOf(d)->operands[1].domain, Domain::kIndex);
  d.attrs = {{"x", AttrKind::kInt, std::nullopt, "One."}};
  EXPECT_EQ(error(d), "signature: x stands twice");
  d.attrs = {{"b", AttrKind::kBlob, std::nullopt, "One."}};
  EXPECT_EQ(error(d),
            "attribute b: expected int, float, bool, string, dtype, ints or floats, got blob");
}

TEST(Declaration, JsonGoesThereAndBack) {
  OpDeclaration d = Declare("x: T[N], i: i64[B] -> y: T[B]");
  d.version = 7;
  d.doc = "Takes \"rows\".";
  d.indices = {{"i", "N"}};
  d.attrs = {{"z", AttrKind::kBool, AttrValue(true), "Z."},
             {"a", AttrKind::kFloats, AttrValue(Doubles{1.5, -2}), "A."},
             {"t", AttrKind::kDType, AttrValue(DType::kBF16), "T."},
             {"s", AttrKind::kString, AttrValue(std::string("q")), "S."},
             {"n", AttrKind::kInt, std::nullopt, "N."}};
  const auto back = DeclarationsFromJson(ToJson(std::vector{d, d}));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), 2u);
  const OpDeclaration& b = (*back)[1];
  EXPECT_EQ(b.signature, d.signature);
  EXPECT_EQ(b.version, 7);
  EXPECT_EQ(b.doc, d.doc);
  EXPECT_EQ(b.indices, d.indices);
  ASSERT_EQ(b.attrs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(b.attrs[i].name, d.attrs[i].name);
    EXPECT_EQ(b.attrs[i].kind, d.attrs[i].kind);
    EXPECT_EQ(b.attrs[i].fallback, d.attrs[i].fallback);
  }
  EXPECT_EQ(ToJson(*back), ToJson(std::vector{d, d}));
}

TEST(Declaration, JsonThatIsNoneIsRefused) {
  const auto error = [](std::string_view json) {
    const auto d = DeclarationFromJson(json);
    return d.ok() ? "accepted" : MessageOf(d.status());
  };
  EXPECT_EQ(error("{"), "expected JSON, got {");
  EXPECT_EQ(error("[]"), "declaration: expected an object, got []");
  EXPECT_EQ(error("{}"), "\"name\" is missing");
  EXPECT_EQ(error(R"({"name": "user.a"})"), "\"signature\" is missing");
  EXPECT_EQ(error(R"({"name": 3})"), "name: expected a string, got 3");
  EXPECT_EQ(error(R"({"nmae": "user.a"})"), "unknown key 'nmae', did you mean name?");
  EXPECT_EQ(error(R"({"version": -1})"), "version: expected 1 to 65535, got -1");
  EXPECT_EQ(error(R"({"types": {"T": []}})"), "types.T: expected a list of element types, got []");
  EXPECT_EQ(error(R"({"types": {"T": ["f33"]}})"), "types.T: expected element types, got \"f33\"");
  EXPECT_EQ(error(R"({"attributes": {"k": {"type": "integer"}}})"),
            "attributes.k.type: expected int, float, bool, string, dtype, ints or floats, got "
            "\"integer\"");
  EXPECT_EQ(error(R"({"attributes": {"k": {"type": "int", "default": 1.5}}})"),
            "attributes.k.default: expected a default of kind int, got 1.5");
  EXPECT_EQ(error(R"({"attributes": {"k": {"typ": "int"}}})"),
            "attributes.k: unknown key 'typ'; expected type, default, doc");
  EXPECT_EQ(error(std::string(100000, '[')), "expected JSON nested at most 64 deep");
  // Any bytes: an answer, and no more.
  std::mt19937_64 random(20261121);
  const std::string whole =
      ToJson(std::vector{Declare("x: T[M, K], w: T[K, N] -> y: T[M, 2 * N]")});
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto read = DeclarationsFromJson(bytes);
    if (read.ok()) (void)CatalogueOf(*read);
  }
}

TEST(Declaration, TwoOfOneName) {
  const OpDeclaration a = Declare("x: T[N] -> y: T[N]"), b = Declare("x: T[N] -> y: T[N, N]");
  EXPECT_EQ(MessageOf(ExtendCatalogue({*RowOf(a), *RowOf(b)}).status()),
            "two ops are called user.own");
  EXPECT_EQ(CatalogueOf(std::vector{a, b})->Find("user.own")->Signature(), RowOf(a)->Signature());
  EXPECT_EQ(Catalogue().Find("user.own"), nullptr);
}

}  // namespace
}  // namespace opwire

// The catalogue as a table: its rows hold together, look-ups find them, names near an unknown one
// are offered.
#include "ir/ops/catalogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ir/ops/names.h"

namespace opwire {
namespace {

TEST(Catalogue, RowsAreFoundByName) {
  std::set<std::string> names;
  for (const OpDef& row : Catalogue().rows()) {
    EXPECT_EQ(Catalogue().Find(row.name), &row);
    EXPECT_EQ(Catalogue().FindAlias(row.name), nullptr);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(Catalogue().Find(""), nullptr);
  EXPECT_EQ(Catalogue().Find("zzz"), nullptr);
  EXPECT_EQ(Catalogue().Find("max"), nullptr) << "aliases are not rows";
  for (const OpAlias& alias : Catalogue().aliases()) {
    EXPECT_EQ(Catalogue().FindAlias(alias.alias), &alias);
    EXPECT_NE(Catalogue().Find(alias.name), nullptr) << alias.alias;
  }
  EXPECT_TRUE(Catalogue().FindAlias("rsubscalar")->swap);
  EXPECT_FALSE(Catalogue().FindAlias("subscalar")->swap);
}

// What issue 3 asks for, written down a second time on purpose: a row lost from the table fails
// here.
TEST(Catalogue, HoldsAllOfItsFamilies) {
  const std::pair<std::string, size_t> families[] = {
      {"elementwise", 62}, {"shape", 16}, {"create", 8}, {"reduce", 10},   {"sort", 3},
      {"softmax", 4},      {"norm", 6},   {"matmul", 4}, {"attention", 4}, {"rotary", 1},
      {"loss", 5},         {"optim", 8},  {"quant", 2},  {"blocks", 3},    {"sampling", 1},
      {"convolution", 2},  {"control", 4}};
  size_t all = 0;
  for (const auto& [family, count] : families) {
    size_t found = 0;
    for (const OpDef& row : Catalogue().rows()) found += row.family == family;
    EXPECT_EQ(found, count) << family;
    all += count;
  }
  EXPECT_EQ(Catalogue().rows().size(), all);
  EXPECT_EQ(Catalogue().aliases().size(), 34u);
}

TEST(Catalogue, RowsAreWhole) {
  for (const OpDef& row : Catalogue().rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.version, 1);
    EXPECT_EQ(row.effects, row.control == Control::kEmit ? Effects::kEmit : Effects::kPure);
    EXPECT_FALSE(row.doc.empty());
    EXPECT_EQ(row.doc.back(), '.');
    EXPECT_EQ(row.body.Empty(), row.family != "elementwise");
    EXPECT_TRUE(row.body.Empty() || row.aliasing == Aliasing::kElementwise);
    for (const AttrSpec& a : row.attrs) {
      EXPECT_TRUE(!a.fallback || KindOf(*a.fallback) == a.kind) << a.name;
    }
    for (const OperandSpec& o : row.operands) {
      EXPECT_FALSE(row.TypesOf(o.type).Empty()) << o.name;
      EXPECT_TRUE(o.domain == Domain::kAny || row.TypesOf(o.type) == kIndex) << o.name;
    }
    const std::vector<Shape> operands(row.operands.size(), Shape{4, 4}),
        results(row.results.size(), Shape{4, 4});
    const OpCost cost = row.cost({operands, results, 4});
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_GE(cost.bytes, row.control == Control::kNone ? 64 : 0)
        << "at least the result is written";
  }
}

TEST(Catalogue, SignaturesAndBodiesPrint) {
  EXPECT_EQ(Catalogue().Find("add")->Signature(), "add(x: A, y: A) -> z: A");
  EXPECT_EQ(Catalogue().Find("layer_norm")->Signature(),
            "layer_norm(x: F, weight?: F, bias?: F) -> y: F");
  EXPECT_EQ(Catalogue().Find("choose")->Signature(), "choose(case: I, xs...: T) -> y: T");
  EXPECT_EQ(Catalogue().Find("zeros")->Signature(), "zeros() -> y: U");
  EXPECT_EQ(Catalogue().Find("relu")->body.ToString({"x"}, {}), "select(le(x, 0), 0, x)");
  EXPECT_EQ(Catalogue().Find("silu")->body.ToString({"x"}, {}), "div(x, add(1, exp(neg(x))))");
  EXPECT_EQ(Catalogue().Find("where")->body.ToString({"c", "x", "y"}, {}), "select(c, x, y)");
}

TEST(Catalogue, CostOfMatmul) {
  const OpDef& row = *Catalogue().Find("matmul");
  const std::vector<Shape> operands = {{5, 2, 3}, {3, 4}}, results = {{5, 2, 4}};
  const OpCost cost = row.cost({operands, results, 4});
  EXPECT_EQ(cost.flops, 2.0 * 5 * 2 * 3 * 4);
  EXPECT_EQ(cost.bytes, 4.0 * (30 + 12 + 40));
}

TEST(Catalogue, ConvolutionCostsItsProducts) {
  const auto flops = [](const char* op, const std::vector<Shape>& operands,
                        const std::vector<Shape>& results) {
    return Catalogue().Find(op)->cost({operands, results, 4}).flops;
  };
  // 2 * 10 * 7 * 7 elements of 6 channels and 3 x 3 each.
  EXPECT_EQ(flops("convolution", {{2, 6, 9, 9}, {10, 6, 3, 3}, {}}, {{2, 10, 7, 7}}),
            2.0 * 980 * 54);
  EXPECT_EQ(flops("convolution", {{2, 10, 7, 7}, {10, 6, 3, 3}, {}}, {{2, 6, 9, 9}}),
            2.0 * 980 * 54)
      << "transposed";
  EXPECT_EQ(flops("convolution", {{1, 6, 9, 9}, {6, 6, 3, 3}, {}}, {{1, 6, 4, 4}}), 2.0 * 96 * 54);
  EXPECT_EQ(flops("convolution_backward", {{2, 10, 7, 7}, {2, 6, 9, 9}, {10, 6, 3, 3}},
                  {{2, 6, 9, 9}, {10, 6, 3, 3}}),
            4.0 * 980 * 54);
}

TEST(Catalogue, NearestNames) {
  EXPECT_EQ(Catalogue().Nearest("matmull").front(), "matmul");
  EXPECT_EQ(Catalogue().Nearest("sofmtax").front(), "softmax");
  EXPECT_LE(Catalogue().Nearest("ad").size(), 3u);
  EXPECT_TRUE(Catalogue().Nearest("entirely_unlike_all").empty());
  EXPECT_TRUE(Catalogue().Nearest(std::string(1 << 20, 'a')).empty());
  EXPECT_EQ(DidYouMean({}), "");
  EXPECT_EQ(DidYouMean({"a", "b"}), ", did you mean a, b?");
}

TEST(Names, PrintableTextNeitherControlsNorReordersATerminal) {
  EXPECT_EQ(Printable("größe 1, 日本, 🙂"), "größe 1, 日本, 🙂");
  EXPECT_EQ(Printable("a\nb\tc\x1b[2J\x7f"), "a\nb\\x09c\\x1b[2J\\x7f");
  EXPECT_EQ(Printable("a\nb", true), "a\\x0ab");
  EXPECT_EQ(Printable("\xc2\x85|\xc2\x9b|\xc2\xa0"), "\\u0085|\\u009b|\xc2\xa0");
  EXPECT_EQ(Printable("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\u2010"),
            "\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a\\u202e\\u2066\\u2069\u2010");
  // No UTF-8: alone, overlong, a surrogate, beyond the last code point, cut off.
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(Printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("a\xe2\x80"), "a\\xe2\\x80");
}

TEST(Names, ClipEscapesAndCuts) {
  EXPECT_EQ(Clip("plain"), "plain");
  EXPECT_EQ(Clip("a\n\x1b[31m\xff"), "a\\x0a\\x1b[31m\\xff");
  EXPECT_EQ(Clip("abcdef", 6), "abcdef");
  EXPECT_EQ(Clip("abcdef", 5), "abcde...");
}

TEST(Names, Identifiers) {
  for (const char* good : {"a", "_", "layers.0.weight", "A9"})
    EXPECT_TRUE(IsIdentifier(good)) << good;
  for (const char* bad : {"", "0", ".a", "a b", "a-b", "\xc3\xa4", "a\n"})
    EXPECT_FALSE(IsIdentifier(bad)) << bad;
  EXPECT_FALSE(IsIdentifier(std::string_view("a\0", 2)));
}

OpDef Sample() {
  OpDef row = *Catalogue().Find("add");
  row.name = "sample";
  return row;
}

TEST(CatalogueDeath, ContradictionsEndTheProcess) {
  const auto with = [](auto change) {
    OpDef row = Sample();
    change(row);
    return row;
  };
  EXPECT_DEATH(OpCatalogue({Sample(), Sample()}, {}), "one row a name");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.infer = nullptr; })}, {}), "shape rule");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.cost = nullptr; })}, {}), "cost");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.doc = ""; })}, {}), "documentation");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.operands[1].name = "x"; })}, {}), "named once");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.operands[1].type = "Q"; })}, {}), "known types");
  EXPECT_DEATH(OpCatalogue({with([](OpDef& r) { r.body = expr::In(2); })}, {}),
               "over its operands");
  EXPECT_DEATH(OpCatalogue({Sample()}, {{"other", "nothing"}}), "alias of a row");
  EXPECT_DEATH(OpCatalogue({Sample()}, {{"sample", "sample"}}), "one meaning");
}

}  // namespace
}  // namespace opwire

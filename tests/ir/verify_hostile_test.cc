// The verifier under load and damage: modules as large as the limits allow, and random damage.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/text/text.h"
#include "ir/verify/verify.h"
#include "tests/ir/random_program.h"
#include "tests/seed.h"

namespace opwire {
namespace {

std::string ErrorOf(Module m) { return MessageOf(VerifyModule(m).status()); }

// As many nodes, operands and parameters as the limits allow take linear time: otherwise the
// seconds here would be minutes.
TEST(VerifyHostile, LargeModules) {
  Module chain;
  const TensorType type{.dtype = DType::kF32, .shape = {chain.dims.Constant(2)}};
  Function f{.name = "f"};
  for (int i = 0; i < 65536; ++i)
    f.params.push_back({.name = "p" + std::to_string(i), .mode = ParamMode::kInout, .type = type});
  for (int i = 0; i < 65536; ++i) {
    f.nodes.push_back({.op = "neg", .operands = {i}, .results = {type}});
    f.results.push_back({"p" + std::to_string(i), 65536 + i});
  }
  chain.functions.push_back(f);
  EXPECT_EQ(ErrorOf(chain), "");
  chain.functions[0].nodes.push_back(f.nodes[0]);
  EXPECT_EQ(ErrorOf(chain), "nodes: expected at most 65536, got 65537");

  Module lists;
  const TensorType empty{.dtype = DType::kF32, .shape = {lists.dims.Constant(0)}};
  Function g{.name = "g", .params = {{.name = "x", .type = empty}}};
  for (int i = 0; i < 16; ++i) {
    g.nodes.push_back({.op = "cat",
                       .operands = std::vector<ValueId>(65536, 0),
                       .segments = {65536},
                       .results = {empty}});
  }
  lists.functions.push_back(std::move(g));
  EXPECT_EQ(ErrorOf(lists), "");

  // Products of many factors on every node, which reshape compares.
  auto products =
      Parse("program @p(%x: f32[?a, ?b, ?c, ?d, ?e, ?f, ?g, ?h]) -> () { return }", "t");
  ASSERT_TRUE(products.ok());
  Function& p = products->functions[0];
  std::vector<Dim> shape = p.params[0].type.shape;
  for (Dim& d : shape) {
    Dim square = d;
    for (int i = 0; i < 16; ++i) square = products->dims.Mul(square, d);
    d = square;
  }
  p.params.push_back({.name = "y", .type = {.dtype = DType::kF32, .shape = shape}});
  for (int i = 0; i < 20000; ++i) {
    std::rotate(shape.begin(), shape.begin() + 1, shape.end());
    p.nodes.push_back({.op = "reshape",
                       .operands = {1 + i},
                       .attrs = {{"shape", Dims(shape)}},
                       .results = {{.dtype = DType::kF32, .shape = shape}}});
  }
  EXPECT_EQ(ErrorOf(*products), "");

  // Extents that double with each node stop at the size of an expression.
  Module doubling;
  const Dim b = *doubling.dims.Symbol("b");
  Function h{.name = "h", .params = {{.name = "x", .type = {.dtype = DType::kF32, .shape = {b}}}}};
  Dim extent = b;
  for (int i = 0; i < 100; ++i) {
    extent = doubling.dims.Add(extent, extent);
    h.nodes.push_back({.op = "cat",
                       .operands = {i, i},
                       .segments = {2},
                       .results = {{.dtype = DType::kF32, .shape = {extent}}}});
  }
  doubling.functions.push_back(std::move(h));
  EXPECT_EQ(
      ErrorOf(doubling),
      "cat: the joined extent is an expression of more than 256 terms (node %7 cat of \"h\")");
}

// Random damage to valid modules: there is always an answer, and accepted modules print and parse
// to the same.
TEST(VerifyHostile, RandomDamageIsAnswered) {
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  OPWIRE_TRACE_SEED();
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Module m = RandomModule(rng, {.nodes = 6});
    Function& f = m.functions[0];
    Node& n = f.nodes[rng() % f.nodes.size()];
    switch (rng() % 10) {
      case 0:
        n.op = Catalogue().rows()[rng() % Catalogue().rows().size()].name;
        break;
      case 1:
        n.operands.assign(rng() % 4, static_cast<ValueId>(rng() % 12) - 1);
        break;
      case 2:
        n.segments.assign(rng() % 3, static_cast<uint32_t>(rng()));
        break;
      case 3:
        n.attrs.assign(rng() % 3, {"dim", AttrValue(static_cast<int64_t>(rng()))});
        break;
      case 4:
        n.results.assign(rng() % 3, {.dtype = static_cast<DType>(rng() % 20),
                                     .shape = {Dim{static_cast<uint32_t>(rng() % 40)}}});
        break;
      case 5:
        f.params[rng() % f.params.size()].mode = static_cast<ParamMode>(rng() % 4);
        break;
      case 6:
        f.params[rng() % f.params.size()].type.shape.assign(rng() % 18,
                                                            Dim{static_cast<uint32_t>(rng() % 40)});
        break;
      case 7:
        f.results.push_back({"w", static_cast<ValueId>(rng() % 40) - 2});
        break;
      case 8:
        std::swap(n, f.nodes[rng() % f.nodes.size()]);
        break;
      default:
        f.params.erase(f.params.begin() + static_cast<int64_t>(rng() % f.params.size()));
        break;
    }
    if (!VerifyModule(m).ok()) {
      ++refused;
      continue;
    }
    auto again = Parse(Print(m), "t.opw");
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << Print(m);
    EXPECT_TRUE(Equal(m, *again)) << Print(m);
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace opwire

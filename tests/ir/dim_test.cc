// Dimension expressions: simplification, bounds, evaluation against a plain one, limits.
#include "ir/base/dim.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "ir/base/type.h"
#include "tests/seed.h"

namespace opwire {
namespace {

TEST(Dim, EqualExpressionsAreOneHandle) {
  DimTable t;
  const Dim b = *t.Symbol("b"), c = *t.Symbol("c"), one = t.Constant(1), two = t.Constant(2);
  EXPECT_EQ(t.Add(b, c), t.Add(c, b));
  EXPECT_EQ(t.Mul(b, c), t.Mul(c, b));
  EXPECT_EQ(t.Min(b, c), t.Min(c, b));
  EXPECT_EQ(t.Max(b, c), t.Max(c, b));
  EXPECT_EQ(t.Add(t.Add(b, one), one), t.Add(b, two));
  EXPECT_EQ(t.Add(b, t.Constant(0)), b);
  EXPECT_EQ(t.Mul(t.Mul(two, b), t.Constant(3)), t.Mul(t.Constant(6), b));
  EXPECT_EQ(t.Mul(b, one), b);
  EXPECT_EQ(t.Mul(b, t.Constant(0)), t.Constant(0));
  EXPECT_EQ(t.FloorDiv(t.Mul(t.Constant(6), b), two), t.Mul(t.Constant(3), b));
  EXPECT_EQ(t.FloorDiv(t.Constant(7), two), t.Constant(3));
  EXPECT_EQ(t.Mod(t.Constant(7), two), one);
  EXPECT_EQ(t.Mod(b, one), t.Constant(0));
  EXPECT_EQ(*t.Symbol("b"), b);
  EXPECT_NE(b, c);
}

TEST(Dim, FactorsThatAreNeverZeroGoFromQuotients) {
  DimTable t;
  const Dim n = *t.Symbol("n", 1), m = *t.Symbol("m", 2), z = *t.Symbol("z"), eight = t.Constant(8),
            four = t.Constant(4);
  const Dim product = t.Mul(t.Mul(eight, n), m);
  EXPECT_EQ(t.FloorDiv(t.Mul(eight, n), n), eight);
  EXPECT_EQ(t.FloorDiv(n, n), t.Constant(1));
  EXPECT_EQ(t.FloorDiv(product, n), t.Mul(eight, m));
  EXPECT_EQ(t.FloorDiv(product, t.Mul(n, m)), eight);
  EXPECT_EQ(t.FloorDiv(product, t.Mul(four, n)), t.Mul(t.Constant(2), m));
  EXPECT_EQ(t.FloorDiv(t.Mul(t.Constant(6), n), t.Mul(four, n)), t.Constant(1)) << "6 // 4";
  EXPECT_EQ(t.FloorDiv(t.Mul(t.Add(n, eight), m), t.Add(n, eight)), m);
  EXPECT_EQ(t.ToString(t.FloorDiv(t.Mul(eight, z), z)), "8*?z//?z") << "an error where z is 0";
  EXPECT_EQ(t.ToString(t.FloorDiv(t.Add(n, m), n)), "(?n+?m)//?n");
  Dim many = n;
  for (int i = 0; i < 100; ++i) many = t.Mul(many, many);
  EXPECT_EQ(t.node(t.FloorDiv(many, m)).kind, DimKind::kFloorDiv)
      << "and at once, whatever the tree's size";
}

TEST(Dim, BoundsSettleMinAndMax) {
  DimTable t;
  const Dim small = *t.Symbol("s", 1, 8), large = *t.Symbol("l", 8, 100);
  EXPECT_EQ(t.Min(small, large), small);
  EXPECT_EQ(t.Max(large, small), large);
  EXPECT_EQ(t.Bounds(t.Add(small, large)).lower, 9);
  EXPECT_EQ(t.Bounds(t.Mul(small, large)).upper, 800);
  EXPECT_EQ(t.Bounds(t.FloorDiv(large, small)).lower, 1);
  EXPECT_EQ(t.Bounds(t.FloorDiv(large, small)).upper, 100);
  EXPECT_EQ(t.Bounds(t.Mod(large, small)).upper, 7);
  EXPECT_EQ(t.Bounds(t.FromValue(3, small)).lower, 0);
  EXPECT_EQ(t.Bounds(t.FromValue(3, small)).upper, 8);
}

TEST(Dim, CompareTellsWhatIsKnown) {
  DimTable t;
  const Dim b = *t.Symbol("b", 1, 64, 8), c = *t.Symbol("c");
  EXPECT_EQ(t.Compare(b, b), DimOrder::kEqual);
  EXPECT_EQ(t.Compare(b, c), DimOrder::kUnknown);
  EXPECT_EQ(t.Compare(b, t.Constant(16)), DimOrder::kUnknown);
  EXPECT_EQ(t.Compare(b, t.Constant(12)), DimOrder::kDifferent) << "no multiple of 8";
  EXPECT_EQ(t.Compare(t.Constant(65), b), DimOrder::kDifferent) << "out of bounds";
  EXPECT_EQ(t.Compare(t.Add(c, t.Constant(1)), c), DimOrder::kDifferent);
  EXPECT_EQ(t.Compare(t.Add(c, t.Constant(1)), t.Add(c, t.Constant(2))), DimOrder::kDifferent);
  EXPECT_EQ(t.Compare(t.Constant(3), t.Constant(4)), DimOrder::kDifferent);
}

TEST(Dim, Prints) {
  DimTable t;
  const Dim b = *t.Symbol("b"), c = *t.Symbol("c");
  EXPECT_EQ(t.ToString(t.Add(t.Mul(b, t.Constant(2)), t.Constant(1))), "2*?b+1");
  EXPECT_EQ(t.ToString(t.Mul(t.Add(b, t.Constant(1)), t.Constant(2))), "2*(?b+1)");
  EXPECT_EQ(t.ToString(t.Min(b, t.Constant(8))), "min(?b, 8)");
  EXPECT_EQ(t.ToString(t.FloorDiv(b, t.Mod(c, t.Constant(4)))), "?b//(?c%4)");
  EXPECT_EQ(t.ToString(t.FromValue(3, t.Constant(128))), "from(%3, 128)");
}

TEST(Dim, BadSymbols) {
  DimTable t;
  EXPECT_TRUE(t.Symbol("b", 0, kMaxExtent).ok());
  EXPECT_FALSE(t.Symbol("b", 1, kMaxExtent).ok()) << "declared otherwise";
  EXPECT_FALSE(t.Symbol("", 0, 1).ok());
  EXPECT_FALSE(t.Symbol("x", -1, 1).ok());
  EXPECT_FALSE(t.Symbol("x", 2, 1).ok());
  EXPECT_FALSE(t.Symbol("x", 0, kMaxExtent + 1).ok());
  EXPECT_FALSE(t.Symbol("x", 0, 1, 0).ok());
  EXPECT_TRUE(t.Symbol("x", 1, 1).ok());
}

TEST(Dim, MakeRefusesWhatDoesNotExist) {
  DimTable t;
  const Dim b = *t.Symbol("b");
  EXPECT_FALSE(t.Make({DimKind::kAdd, 0, b, Dim{99}}).ok());
  EXPECT_FALSE(t.Make({DimKind::kFromValue, 0, Dim{99}, {}}).ok());
  EXPECT_FALSE(t.Make({DimKind::kSymbol, 1, {}, {}}).ok());
  EXPECT_FALSE(t.Make({DimKind::kSymbol, -1, {}, {}}).ok());
  EXPECT_FALSE(t.Make({static_cast<DimKind>(99), 0, {}, {}}).ok());
  EXPECT_EQ(*t.Make({DimKind::kSymbol, 0, {}, {}}), b);
  // Trees at the limit and one over.
  Dim sum = *t.Symbol("x0");
  for (int i = 1; i < 128; ++i)
    sum = *t.Make({DimKind::kAdd, 0, sum, *t.Symbol("x" + std::to_string(i))});
  EXPECT_EQ(t.TreeSize(sum), kMaxTreeSize - 1);
  EXPECT_FALSE(t.Make({DimKind::kAdd, 0, sum, b}).ok());
  EXPECT_EQ(t.TreeSize(*t.Make({DimKind::kFromValue, 0, sum, {}})), kMaxTreeSize);
}

TEST(Dim, GrowthByDoublingStaysLinear) {
  DimTable t;
  Dim d = *t.Symbol("b");
  for (int i = 0; i < 1000; ++i) d = t.Add(d, d);
  EXPECT_LT(t.nodes().size(), 1100u);
  EXPECT_EQ(t.ToString(d), "(...)");
  const int64_t one[] = {1};
  EXPECT_EQ(DimValues(t, one).Get(d).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Dim, ValuesRefuseWhatIsNoExtent) {
  DimTable t;
  const Dim b = *t.Symbol("b", 0, 100);
  const Dim zero_divisor = t.FloorDiv(t.Constant(8), b), zero_modulus = t.Mod(t.Constant(8), b);
  const Dim negative = t.Add(b, t.Constant(-3)),
            large = t.Mul(t.Constant(kMaxExtent), t.Add(b, t.Constant(2)));
  const int64_t none[] = {0};
  const DimValues at_zero(t, none);
  EXPECT_FALSE(at_zero.Get(zero_divisor).ok());
  EXPECT_FALSE(at_zero.Get(zero_modulus).ok());
  EXPECT_FALSE(at_zero.Get(negative).ok());
  EXPECT_FALSE(at_zero.Get(large).ok());
  const int64_t three[] = {3};
  EXPECT_EQ(*DimValues(t, three).Get(negative), 0);
  EXPECT_TRUE(t.CheckSymbol(0, 100).ok());
  EXPECT_FALSE(t.CheckSymbol(0, 101).ok());
  EXPECT_FALSE(t.CheckSymbol(0, -1).ok());
}

// Random expressions, simplified as they are built, against the same built as plain functions; and
// their bounds hold.
TEST(Dim, SimplificationKeepsValues) {
  const uint64_t seed = Seed();
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    DimTable t;
    using Plain = std::function<std::optional<int64_t>(const std::vector<int64_t>&)>;
    std::vector<std::pair<Dim, Plain>> made;
    for (size_t i = 0; i < 3; ++i) {
      made.emplace_back(*t.Symbol("s" + std::to_string(i), i, 12),
                        [i](const std::vector<int64_t>& v) { return v[i]; });
    }
    for (int64_t c : {0, 1, 2, 3, 4, 6})
      made.emplace_back(t.Constant(c), [c](const std::vector<int64_t>&) { return c; });
    for (int i = 0; i < 25; ++i) {
      const auto [a, fa] = made[rng() % made.size()];
      const auto [b, fb] = made[rng() % made.size()];
      const auto kind = static_cast<DimKind>(2 + rng() % 6);
      if (t.TreeSize(a) + t.TreeSize(b) > 30) continue;
      made.emplace_back(
          *t.Make({kind, 0, a, b}),
          [=, fa = fa, fb = fb](const std::vector<int64_t>& v) -> std::optional<int64_t> {
            const auto x = fa(v), y = fb(v);
            if (!x || !y) return std::nullopt;
            switch (kind) {
              case DimKind::kAdd:
                return CheckedAdd(*x, *y);
              case DimKind::kMul:
                return CheckedMul(*x, *y);
              case DimKind::kFloorDiv:
                return *y == 0 ? std::nullopt : std::optional(*x / *y);
              case DimKind::kMod:
                return *y == 0 ? std::nullopt : std::optional(*x % *y);
              case DimKind::kMin:
                return std::min(*x, *y);
              default:
                return std::max(*x, *y);
            }
          });
    }
    for (int binding = 0; binding < 20; ++binding) {
      std::vector<int64_t> v;
      for (uint64_t i = 0; i < 3; ++i) v.push_back(static_cast<int64_t>(i + rng() % (13 - i)));
      const DimValues values(t, v);
      for (const auto& [dim, plain] : made) {
        const auto want = plain(v);
        const auto got = values.Get(dim);
        // Simplification may give a number where the plain form has none (0 * (1//0)), never
        // another one.
        if (!want || *want > kMaxExtent) continue;
        ASSERT_TRUE(got.ok()) << got.status() << " seed " << seed;
        ASSERT_EQ(*got, *want) << t.ToString(dim) << " seed " << seed;
        EXPECT_GE(*want, t.Bounds(dim).lower) << t.ToString(dim) << " seed " << seed;
        EXPECT_LE(*want, t.Bounds(dim).upper) << t.ToString(dim) << " seed " << seed;
      }
    }
  }
}

TEST(Type, BytesAndText) {
  EXPECT_EQ(TensorBytes(DType::kF32, Encoding::kDense, Ints{2, 3}), 24);
  EXPECT_EQ(TensorBytes(DType::kF32, Encoding::kDense, {}), 4);
  EXPECT_EQ(TensorBytes(DType::kF32, Encoding::kDense, Ints{0, INT64_MAX, INT64_MAX}), 0);
  EXPECT_EQ(TensorBytes(DType::kF32, Encoding::kDense, Ints{INT64_MAX, 2}), std::nullopt);
  EXPECT_EQ(TensorBytes(DType::kF64, Encoding::kDense, Ints{int64_t{1} << 60}), std::nullopt);
  EXPECT_EQ(TensorBytes(DType::kF32, Encoding::kDense, Ints{-1}), std::nullopt);
  EXPECT_EQ(TensorBytes(DType::kI8, Encoding::kPackedI4, Ints{3, 4}), 6);
  EXPECT_EQ(TensorBytes(DType::kI8, Encoding::kPackedI4, Ints{4, 3}), std::nullopt)
      << "half a block a row";
  EXPECT_EQ(TensorBytes(DType::kI8, Encoding::kQ8_0, Ints{2, 64}), 136);
  EXPECT_EQ(TensorBytes(DType::kI8, Encoding::kQ6_K, Ints{1, 256}), 210);
  DimTable t;
  EXPECT_EQ(ToString({DType::kF32, Encoding::kDense, {*t.Symbol("b"), t.Constant(64)}}, t),
            "f32[?b, 64]");
  EXPECT_EQ(ToString({DType::kI8, Encoding::kQ8_0, {t.Constant(32)}}, t), "i8:q8_0[32]");
  EXPECT_EQ(ToString({DType::kBool, Encoding::kDense, {}}, t), "bool[]");
}

}  // namespace
}  // namespace opwire

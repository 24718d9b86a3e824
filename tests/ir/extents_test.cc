// Extents by name: from shapes and back, and formulas over them.
#include "ir/ops/extents.h"

#include <gtest/gtest.h>

#include "tests/assert_ok.h"

namespace opwire {
namespace {

TEST(Extents, OfACallsShapes) {
  const OpDeclaration d{
      .name = "user.x",
      .signature = "x: f32[..., M, N], w: f32[N, 2 * K], s: f32[3] -> y: f32[..., M, K]"};
  const std::vector<Shape> shapes = {{5, 4, 7, 9}, {9, 22}, {3}};
  ASSERT_OK_AND(const auto extents, ExtentsOf(d, shapes));
  EXPECT_EQ(extents, (std::map<std::string, int64_t>{{"...", 20}, {"M", 7}, {"N", 9}}));
  const std::vector<Shape> none = {{7, 9}, {9, 0}, {3}};
  ASSERT_OK_AND(const auto alone, ExtentsOf(d, none));
  EXPECT_EQ(alone.at("..."), 1);
}

TEST(Extents, Formulas) {
  const std::map<std::string, int64_t> values = {
      {"M", 7}, {"N", 9}, {"zero", 0}, {"minus", -1}, {"huge", int64_t{1} << 40}};
  const std::vector<std::string> names = {"M", "N", "zero", "minus", "huge"};
  const auto says = [&](std::string_view formula) {
    return MessageOf(Evaluate(formula, values).status());
  };
  for (const auto& [formula, value] :
       std::vector<std::pair<std::string, int64_t>>{{"12", 12},
                                                    {"M", 7},
                                                    {"(M * N + 3) / 4", 16},
                                                    {"M * (N + 3) / 4", 21},
                                                    {"min(M, N) % 4 + max(M, 2 * N)", 21},
                                                    {"zero * 5", 0},
                                                    {"N * 4", 36}}) {
    EXPECT_TRUE(CheckFormula(formula, names).ok()) << formula;
    ASSERT_OK_AND(const int64_t got, Evaluate(formula, values));
    EXPECT_EQ(got, value) << formula;
  }
  EXPECT_EQ(MessageOf(CheckFormula("M + K", names)),
            "'M + K': expected one of M, N, zero, minus, huge, got K");
  EXPECT_EQ(says("M + K"), "'M + K': K has no value");
  EXPECT_EQ(says("minus + 2"), "'minus + 2': expected minus of at least 0, got -1");
  EXPECT_EQ(MessageOf(CheckFormula("M +", names)),
            "formula: column 4: expected an extent, got the end");
  EXPECT_EQ(MessageOf(CheckFormula("M N", names)),
            "formula: column 3: expected an operator or the end, got N");
  EXPECT_EQ(MessageOf(CheckFormula("", names)),
            "formula: column 1: expected an extent, got the end");
  EXPECT_FALSE(CheckFormula(std::string(100, '(') + "M", names).ok());
  EXPECT_EQ(Evaluate("M / zero", values).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Evaluate("huge * huge", values).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace opwire

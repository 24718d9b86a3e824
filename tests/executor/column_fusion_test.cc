// Column reductions after elementwise nodes: all of them are one kernel, which moves no more bytes
// than it must. Its results are those of the nodes run alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ir/base/element.h"
#include "ir/text/text.h"
#include "tests/executor/fused_runs.h"

namespace opwire::executor {
namespace {

using Labels = std::vector<std::string>;

// ---- Groups
// -------------------------------------------------------------------------------------------------

TEST(ColumnSchedule, TheGradientOfABiasIsOneKernel) {
  EXPECT_EQ(Fused(R"(
program @f(%y: f32[64, 8], %g: f32[64, 8]) -> (b: f32[8], d: f32[64, 8]) {
  %z = full() {value = 0.0}
  %0 = gt(%y, %z)
  %1 = where(%0, %g, %z)
  %2 = sum(%1) {dims = [0]}
  return %2, %1
})"),
            Labels{"fused(gt, where, sum)"});
}

TEST(ColumnSchedule, ReductionsThatReadOneTensorReadItOnce) {
  EXPECT_EQ(Fused(R"(
program @f(%g: f32[3, 64, 8], %x: f32[3, 64, 8]) -> (w: f32[8], b: f32[8], m: f32[1, 1, 8]) {
  %0 = mul(%g, %x)
  %1 = sum(%0) {dims = [0, 1]}
  %2 = sum(%g) {dims = [1, 0]}
  %3 = amax(%x) {dims = [-3, -2], keepdim = true}
  return %1, %2, %3
})"),
            Labels{"fused(mul, sum, sum, amax)"});
}

TEST(ColumnSchedule, AReductionOfAnOperandIsTheOp) {
  EXPECT_EQ(Fused("program @f(%x: f32[64, 8]) -> (y: f32[8]) {\n  %0 = sum(%x) {dims = [0]}\n  "
                  "return %0\n}"),
            Labels{"sum"});
}

TEST(ColumnSchedule, ReductionsOfOtherAxesArePartedAndWhatReadsThemWaits) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 64, 8]) -> (a: f32[64, 8], b: f32[8], c: f32[8], d: f32[4, 8]) {
  %0 = exp(%x)
  %1 = sum(%0) {dims = [0]}
  %2 = neg(%0)
  %3 = sum(%2) {dims = [0, 1]}
  %4 = neg(%3)
  %5 = abs(%4)
  %6 = sum(%0) {dims = [1]}
  return %1, %3, %5, %6
})"),
            (Labels{"fused(exp, sum)", "fused(neg, sum)", "fused(neg, abs)", "sum"}));
}

TEST(ColumnSchedule, RowsAndColumnsAreTwoKernels) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[64, 8], %g: f32[64, 8]) -> (y: f32[64, 8], w: f32[8]) {
  %m = mean(%x) {dims = [1], keepdim = true}
  %0 = sub(%x, %m)
  %1 = mul(%0, %g)
  %2 = neg(%0)
  %3 = abs(%2)
  %4 = sum(%3) {dims = [0]}
  return %1, %4
})"),
            (Labels{"fused(mean, sub, mul)", "fused(neg, abs, sum)"}));
}

TEST(ColumnSchedule, AxesBetweenOthersAreReducedWhereLinesAreLong) {
  const auto text = [](int line) {
    return fmt::format(
        "program @f(%x: f32[4, 64, {0}], %g: f32[{0}]) -> (a: f32[4, {0}]) {{\n  %0 = mul(%x, "
        "%g)\n  %1 = sum(%0) {{dims = [1]}}\n  return %1\n}}\n",
        line);
  };
  EXPECT_EQ(Fused(text(128)), Labels{"fused(mul, sum)"});
  EXPECT_EQ(Fused(text(64)).size(), 2u);
}

// ---- Results
// -------------------------------------------------------------------------------------------------

using ColumnFusionTest = FusedRunsTest;

TEST_F(ColumnFusionTest, ColumnsOfNothing) {
  const auto text = [](const char* reduction) {
    return fmt::format(
        "program @f(%x: f32[?n, 3]) -> (y: f32[3], z: f32[?n, 3]) {{\n  %0 = neg(%x)\n  %1 = "
        "{}(%0) {{dims = [0]}}\n  return %1, %0\n}}\n",
        reduction);
  };
  for (const bool fuses : {true, false}) {
    Start(fuses);
    for (const auto& [reduction, value] : {std::pair{"sum", 0.0f}, {"prod", 1.0f}}) {
      ASSERT_TRUE(Load(c_, 1, text(reduction)).ok());
      const Answer a = Ask(c_, RunOf(1).Array({}, {0, 3}).Inline().Inline());
      ASSERT_TRUE(a.ok()) << a.status;
      EXPECT_EQ(a.Floats(0), std::vector<float>(3, value));
    }
    ASSERT_TRUE(Load(c_, 1, text("amax")).ok());
    const Answer refused = Ask(c_, RunOf(1).Array({}, {0, 3}).Inline().Inline());
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused.status;
    EXPECT_NE(MessageOf(refused.status).find("an extent of 0 has no largest or smallest element"),
              std::string::npos)
        << refused.status;
    EXPECT_TRUE(Ask(c_, RunOf(1).Array({1, 2, 3}, {1, 3}).Inline().Inline()).ok())
        << "the session goes on";
  }
}

TEST_F(ColumnFusionTest, WeightsAreReplacedInTheirPlaces) {
  // The gradient behind a relu replaces one parameter, and its mean replaces another.
  const char* const text = R"(
program @f(inout %g: f32[300, 40], inout %b: f32[40], %y: f32[300, 40]) -> (g: f32[300, 40], b: f32[40]) {
  %z = full() {value = 0.0}
  %0 = gt(%y, %z)
  %1 = where(%0, %g, %z)
  %2 = mean(%1) {dims = [0]}
  return %1, %2
})";
  EXPECT_EQ(Fused(text).size(), 1u);
  const auto fused = Run(Parse(text, "t").value(), Seed(), true, FillSmall),
             alone = Run(Parse(text, "t").value(), Seed(), false, FillSmall);
  ASSERT_EQ(fused[0], "OK");
  for (size_t i : {1, 2})
    EXPECT_LE(Difference(ValuesOf(DType::kF32, fused[i]), ValuesOf(DType::kF32, alone[i])), 2e-5);
}

// A random graph of elementwise ops whose values stay near 1, and of column reductions. All nodes
// are connected.
class RandomColumns {
 public:
  explicit RandomColumns(std::mt19937_64& random) : random_(random) {
    const char* const types[] = {"f32", "f32", "f32", "f64", "bf16", "f16",
                                 "i32", "i64", "u8",  "i16", "bool"};
    type_ = types[Below(std::size(types))];
    const int64_t lengths[] = {1,   2,   3,    7,    16,   64,   127,  128,
                               129, 500, 1023, 1024, 4096, 5000, 20011};
    const int64_t length = lengths[Below(Below(3) ? 11 : std::size(lengths))];
    const uint64_t most =
        static_cast<uint64_t>(std::max<int64_t>(2, (Below(4)                ? 80000
                                                    : type_.ends_with("64") ? 112'000
                                                                            : 225'000) /
                                                       length));
    const bool two = Below(3) == 0, splits = length % 2 == 0 && Below(4) == 0;
    const uint64_t outer = two ? 1 + Below(std::min<uint64_t>(4, most)) : 1;
    const uint64_t before = length >= 128 && most > 8 * outer && Below(4) == 0
                                ? 2 + Below(3)
                                : 1;  // of a leading axis that is not reduced
    const uint64_t rows = Below(8) == 0 ? 1 : 1 + Below(most / outer / before);
    const std::string reduced = two ? fmt::format("{}, {}", outer, rows) : std::to_string(rows),
                      ones = two ? "1, 1" : "1";
    columns_ = splits ? fmt::format("{}, 2", length / 2) : std::to_string(length);
    kept_ = fmt::format("{}, {}", ones, columns_);
    full_ = fmt::format("{}, {}", reduced, columns_);
    left_ = columns_;
    dims_ = two ? "0, 1" : "0";
    if (before > 1) {
      for (std::string* const shape : {&kept_, &full_, &left_})
        *shape = fmt::format("{}, {}", before, *shape);
      dims_ = two ? "1, 2" : "1";
    }
    Param(full_);
    if (Below(2)) Param(full_);
    if (Below(2)) Param(columns_);
    if (Below(2)) Param(reduced + (splits ? ", 1, 1" : ", 1"));
    if (Below(3) == 0) Param("1");
    for (uint64_t i = 1 + Below(8); i > 0; --i) Node();
    Finish();
  }
  const std::string& text() const { return text_; }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  void Param(const std::string& shape) {
    params_ +=
        fmt::format("{}%p{}: {}[{}]", values_.empty() ? "" : ", ", values_.size(), type_, shape);
    values_.push_back(fmt::format("%p{}", values_.size()));
  }
  void Node() {
    const char* const floats[] = {"tanh", "sigmoid", "abs", "neg", "relu"};
    const char* const binary[] = {"maximum", "minimum", "sub", "add"};
    const char* const bools[] = {"bitwise_and", "bitwise_or", "bitwise_xor"};
    const bool is_float = type_[0] == 'f' || type_ == "bf16";
    const std::string name = fmt::format("%{}", made_.size()),
                      last = made_.empty() ? "%p0" : made_.back(),
                      other = values_[Below(values_.size())];
    if (is_float && Below(3) == 0)
      body_ += fmt::format("  {} = {}({})\n", name, floats[Below(5)], last);
    else
      body_ += fmt::format("  {} = {}({}, {})\n", name,
                           type_ == "bool" ? bools[Below(3)] : binary[Below(4)], last, other);
    made_.push_back(name);
    values_.push_back(name);
  }
  void Finish() {
    const char* const floats[] = {"mean", "amax", "amin"};
    const char* const wholes[] = {"sum", "amax", "amin", "prod"};
    const char* const bools[] = {"any", "all"};
    const bool whole = type_[0] == 'i' || type_[0] == 'u';
    std::string results, returned;
    const auto add = [&](const std::string& name, const std::string& shape) {
      results +=
          fmt::format("{}r{}: {}[{}]", results.empty() ? "" : ", ", results.size(), type_, shape);
      returned += (returned.empty() ? "" : ", ") + name;
    };
    for (uint64_t i = 0, reductions = 1 + Below(3); i < reductions; ++i) {
      const bool keeps = Below(2) != 0;
      const std::string& from = i == 0 ? made_.back() : made_[Below(made_.size())];
      body_ += fmt::format("  %f{} = {}({}) {{dims = [{}], keepdim = {}}}\n", i,
                           type_ == "bool" ? bools[Below(2)]
                           : whole         ? wholes[Below(4)]
                                           : floats[Below(3)],
                           from, dims_, keeps);
      add(fmt::format("%f{}", i), keeps ? kept_ : left_);
    }
    if (Below(3) == 0) add(made_[Below(made_.size())], full_);
    text_ = fmt::format("program @f({}) -> ({}) {{\n{}  return {}\n}}\n", params_, results, body_,
                        returned);
  }

  std::mt19937_64& random_;
  std::string type_, columns_, left_, kept_, full_, dims_, params_, body_, text_;
  std::vector<std::string> values_, made_;
};

// Small values, in some programs with a few NaNs.
void FillWithNans(const Param& p, std::string& bytes, std::mt19937_64& random) {
  FillSmall(p, bytes, random);
  if (!kFloats.Has(p.type.dtype) || random() % 4 != 0) return;
  const uint64_t nan = ElementBits(p.type.dtype, std::nan(""));
  const auto size = static_cast<size_t>(DTypeBytes(p.type.dtype));
  for (size_t at = 0; at < bytes.size(); at += size) {
    if (random() % 5000 == 0) std::memcpy(bytes.data() + at, &nan, size);
  }
}

// Equal elementwise groups run as one step. Groups with reductions do not, even if their elements'
// programs are equal.
TEST_F(ColumnFusionTest, EqualReductionsAreKernelsOfTheirOwn) {
  const auto parsed = Parse(R"(
program @f(%x: f32[40, 6], %y: f32[40, 6], %u: f32[30, 6], %v: f32[30, 6]) -> (a: f32[6], b: f32[6]) {
  %0 = mul(%x, %y)
  %1 = sum(%0) {dims = [0]}
  %2 = mul(%u, %v)
  %3 = sum(%2) {dims = [0]}
  return %1, %3
})",
                            "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  Start(true);
  const auto fused = Outcome(c_, *parsed, Seed(), FillSmall),
             alone = Run(*parsed, Seed(), false, FillSmall);
  ASSERT_EQ(fused[0], "OK");
  ASSERT_EQ(alone[0], "OK");
  for (size_t r = 1; r < alone.size(); ++r)
    EXPECT_LE(Difference(ValuesOf(DType::kF32, fused[r]), ValuesOf(DType::kF32, alone[r])),
              Tolerance(DType::kF32))
        << "result " << r - 1;
}

TEST_F(ColumnFusionTest, RandomGraphsAreOneKernelThatMovesLittle) {
  ExpectOneKernelEach([](std::mt19937_64& random) { return RandomColumns(random).text(); },
                      FillWithNans);
}

}  // namespace
}  // namespace opwire::executor

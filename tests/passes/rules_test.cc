// Every rule of the tables in a program of its own: the pass applies it, and the meaning of the
// program stays.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "ir/base/element.h"
#include "ir/passes/pattern.h"
#include "ir/passes/rewrites.h"
#include "ir/program/builder.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/outcome.h"
#include "tests/passes/programs.h"
#include "tests/seed.h"

namespace opwire {
namespace {

constexpr int kElements = 24;

// The left side of a rule as a program.
class ProgramOf {
 public:
  // `other`: the type of operands if the result is a bool.
  ProgramOf(const RuleTerm& term, DType dtype, DType other, std::mt19937_64& random)
      : other_(other), random_(random), f_(m_.Function("rule")) {
    Declare(term, dtype);
    f_.Return("y", Make(term, dtype));
  }
  StatusOr<Module> Finish() { return m_.Finish(); }

 private:
  static bool MakesBool(const OpDef& row) { return row.results[0].type == "bool"; }
  DType OperandType(const OpDef& row, size_t i, DType dtype) const {
    if (row.operands[i].type == "bool") return DType::kBool;
    return MakesBool(row) ? other_ : dtype;
  }
  // Declares parameters first.
  void Declare(const RuleTerm& term, DType dtype) {
    if (term.kind == RuleTerm::Kind::kValue && !values_.contains(term.name))
      values_[term.name] = f_.In(term.name, dtype, {kElements});
    for (size_t i = 0; i < term.operands.size(); ++i)
      Declare(term.operands[i], OperandType(*Catalogue().Find(term.name), i, dtype));
  }
  Value Make(const RuleTerm& term, DType dtype) {
    switch (term.kind) {
      case RuleTerm::Kind::kValue:
        return values_[term.name];
      case RuleTerm::Kind::kConstant:
        return f_.Scalar(dtype, std::ldexp(random_() % 2    ? 1.0
                                           : IsFloat(dtype) ? -1.0
                                                            : 3.0,
                                           static_cast<int>(random_() % 4)));
      case RuleTerm::Kind::kNumber:
        return f_.Scalar(dtype, term.number);
      case RuleTerm::Kind::kOp:
        break;
    }
    std::vector<Value> operands;
    for (size_t i = 0; i < term.operands.size(); ++i)
      operands.push_back(
          Make(term.operands[i], OperandType(*Catalogue().Find(term.name), i, dtype)));
    return f_.Op(term.name, operands);
  }
  static bool IsFloat(DType t) { return kFloats.Has(t); }

  const DType other_;
  std::mt19937_64& random_;
  ModuleBuilder m_;
  FunctionBuilder f_;
  std::map<std::string, Value> values_;
};

class RulesTest : public OutcomeTest {
 protected:
  // Writes numbers of every size, including special ones. `tame`: between 0.5 and 4, for rules that
  // are only approximately right.
  static FillParam Fill(bool tame) {
    return [tame](const Param& p, std::string& bytes, std::mt19937_64& random) {
      const auto size = static_cast<size_t>(DTypeBytes(p.type.dtype));
      const double inf = std::numeric_limits<double>::infinity();
      const double special[] = {0,   -0.0, 1,     -1,    0.5,   -2.5, inf, -inf, std::nan(""),
                                127, -128, 65504, 1e-40, 1e300, 3,    2.5};
      for (size_t at = 0; at < bytes.size(); at += size) {
        uint64_t bits = random();
        if (p.type.dtype == DType::kBool)
          bits = random() % 2;
        else if (tame)
          bits = ElementBits(p.type.dtype, std::uniform_real_distribution<>(0.5, 4)(random));
        else if (random() % 2)
          bits = ElementBits(p.type.dtype, special[random() % std::size(special)]);
        std::memcpy(bytes.data() + at, &bits, size);
      }
    };
  }

  // Checks that the pass changes the program, but not its meaning; `tame` as in Fill.
  void Check(const Module& before, const std::string& pass, Accuracy accuracy, bool tame) {
    Module after = before;
    PipelineOptions options = OnlyPasses({pass, "dead"});
    options.accuracy = accuracy;
    ASSERT_OK_AND(const PipelineReport report, RunPasses(after, options));
    ASSERT_EQ(report.runs.empty() ? "" : report.runs[0].pass, pass);
    EXPECT_GE(report.runs[0].changes, 1) << Print(before);
    double tolerance = 0;
    if (accuracy != Accuracy::kExact) {
      const DType dtype = ValueTypes(after.functions[0])
                              .types[static_cast<size_t>(after.functions[0].results[0].value)]
                              ->dtype;
      tolerance = dtype == DType::kBF16  ? 0.06
                  : dtype == DType::kF16 ? 8e-3
                  : dtype == DType::kF32 ? 1e-6
                                         : 1e-14;
    }
    EXPECT_EQ(Difference(before, after, random_(), tolerance, Fill(tame)), "")
        << Print(before) << "becomes\n"
        << Print(after);
  }

  std::mt19937_64 random_{Seed()};
};

TEST_F(RulesTest, EachRuleOfTheTable) {
  OPWIRE_TRACE_SEED();
  std::map<std::string, int> seen;
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(std::string(rule.text));
    const RulePattern pattern = ParseRule(rule.text);
    int done = 0;
    for (int t = 1; t < kDTypeCount; ++t) {
      const auto dtype = static_cast<DType>(t);
      if (!rule.types.Has(dtype)) continue;
      const bool condition = pattern.from.name == "where",
                 compares =
                     rule.types == kBoolean && pattern.from.operands[0].kind == RuleTerm::Kind::kOp;
      const bool makes_bool = Catalogue().Find(pattern.from.name)->results[0].type == "bool";
      std::vector<DType> others = {dtype};
      if (condition || compares) others = {DType::kF32, DType::kBF16, DType::kI16, DType::kU8};
      for (DType other : others) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << ", " << DTypeName(other));
        ProgramOf program(pattern.from,
                          condition    ? other
                          : makes_bool ? DType::kBool
                                       : dtype,
                          other, random_);
        ASSERT_OK_AND(const Module m, program.Finish());
        Check(m, "simplify", rule.accuracy, rule.accuracy == Accuracy::kFast);
        ++done;
      }
    }
    EXPECT_GT(done, 0) << "no element type has it";
    if (HasFailure()) return;
  }
}

// Powers of two whose reciprocals exist in their type, including subnormal ones, and the next
// powers, whose reciprocals do not exist.
TEST_F(RulesTest, DivisorsWithoutReciprocalsStay) {
  OPWIRE_TRACE_SEED();
  struct Limits {
    const char* type;
    int least, most;  // exponents
  };
  for (const Limits& l :
       {Limits{"f64", -1023, 1023}, {"f32", -127, 127}, {"f16", -15, 15}, {"bf16", -127, 127}}) {
    for (const auto& [exponent, stays] :
         {std::pair(l.least, false), {l.least - 1, true}, {l.most, false}}) {
      const std::string text = fmt::format(
          "program @f(%x: {0}[{1}]) -> (y: {0}[{1}]) {{ %0 = full() {{value = {2}, dtype = {0}}} "
          "%1 = div(%x, %0) return %1 }}",
          l.type, kElements, std::ldexp(1.0, exponent));
      ASSERT_OK_AND(const Module before, Parse(text, "rule.opw"));
      Module after = before;
      ASSERT_OK(RunPasses(after, {.accuracy = Accuracy::kExact}).status());
      EXPECT_EQ(Print(after).find("div(") != std::string::npos, stays) << Print(after);
      EXPECT_EQ(Difference(before, after, random_(), 0, Fill(false)), "")
          << Print(before) << "becomes\n"
          << Print(after);
    }
  }
}

TEST_F(RulesTest, EachProductRule) {
  OPWIRE_TRACE_SEED();
  for (const Rewrite& rule : MatmulRewrites()) {
    SCOPED_TRACE(std::string(rule.text));
    for (const char* const type : {"f64", "f32", "f16", "bf16"}) {
      const bool adds = rule.op == "add", of_linear = rule.text.find("(linear(") != rule.text.npos;
      const std::string product = of_linear ? (adds ? "linear(%x, %w)" : "linear(%x, %w, %b)")
                                            : "matmul(%x, %w) {transpose_y = true}";
      const std::string text = fmt::format(
          "program @f(%x: {0}[2, 3, 8], %w: {0}[5, 8], %b: {0}[5]) -> (y: {0}[2, 3, 5]) {{ %0 = "
          "{1} %1 = {2} return %1 }}",
          type, product,
          adds ? (of_linear ? "add(%0, %b)" : "add(%b, %0)") : fmt::format("{}(%0)", rule.op));
      ASSERT_OK_AND(const Module m, Parse(text, "rule.opw"));
      Check(m, "matmul", Accuracy::kUsual, true);
    }
  }
}

// A matmul stays if it is shared or pinned, or if the other operand is not a bias. It also stays if
// results must be exact.
TEST_F(RulesTest, MatmulsThatStay) {
  const auto after = [](const std::string& body, Accuracy accuracy,
                        const char* results = "y: f32[4, 5]") {
    auto m = Parse(
        "program @f(%x: f32[4, 8], %w: f32[5, 8], %v: f32[8, 5], %b: f32[5], %c: f32[4, 5], %s: "
        "f32[4, 1]) -> (" +
            std::string(results) + ") { " + body + " }",
        "t.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    const auto report = RunPasses(*m, {.accuracy = accuracy});
    EXPECT_TRUE(report.ok()) << report.status();
    return Print(*m);
  };
  const auto stays = [&](const std::string& body, Accuracy accuracy = Accuracy::kUsual,
                         const char* results = "y: f32[4, 5]") {
    EXPECT_EQ(after(body, accuracy, results).find("linear"), std::string::npos) << body;
  };
  EXPECT_NE(
      after("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %b) %2 = gelu(%1) return %2",
            Accuracy::kUsual)
          .find("linear(%x, %w, %b) {activation = \"gelu\"}"),
      std::string::npos);
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %b) return %1", Accuracy::kExact);
  stays("%0 = matmul(%x, %v) %1 = add(%0, %b) return %1");
  stays("%0 = matmul@cpu.reference(%x, %w) {transpose_y = true} %1 = add(%0, %b) return %1");
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %c) return %1");
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %s) return %1");
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %0) return %1");
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = add(%0, %b) return %0, %1", Accuracy::kUsual,
        "p: f32[4, 5], y: f32[4, 5]");
  stays("%0 = matmul(%x, %w) {transpose_y = true} %1 = relu(%0) %2 = mul(%0, %1) return %2");
}

TEST_F(RulesTest, EachNormRule) {
  OPWIRE_TRACE_SEED();
  for (const Rewrite& rule : NormRewrites()) {
    SCOPED_TRACE(std::string(rule.text));
    for (const char* const type : {"f64", "f32", "f16", "bf16"}) {
      // Before the norm the sum has no readers, after it two.
      const std::string text = fmt::format(
          "program @f(%x: {0}[2, 3, 8], %r: {0}[2, 3, 8], %w: {0}[3, 8]) -> (y: {0}[2, 3, 8], s: "
          "{0}[2, 3, 8]) {{ %0 = add(%x, %r) %1 = {1}(%0, %w) "
          "{{dims = 2, eps = 0.25}} %2 = mul(%1, %0) return %2, %0 }}",
          type, rule.op);
      ASSERT_OK_AND(const Module m, Parse(text, "rule.opw"));
      Check(m, "norms", Accuracy::kUsual, true);
    }
  }
}

TEST_F(RulesTest, EachReduceRule) {
  OPWIRE_TRACE_SEED();
  struct Case {
    const char* shape;
    const char* attrs;
    const char* result;
  };
  for (const Rewrite& rule : SplitRewrites()) {
    SCOPED_TRACE(std::string(rule.text));
    for (const char* const type : {"f64", "f32", "f16", "bf16"}) {
      for (const Case& c : {Case{"5, 40", "", ""},
                            {"5, 40", "{keepdim = true}", "1, 1"},
                            {"40, 5", "", ""},
                            {"40, 5", "{keepdim = true}", "1, 1"},
                            {"3, 4, 20", "{dims = [1, -1]}", "3"},
                            {"3, 4, 20", "{dims = [2, 0]}", "4"},
                            {"3, 4, 20", "{dims = [0, 2], keepdim = true}", "1, 4, 1"},
                            {"2, 3, 4, 20", "{dims = [0, 2, 3]}", "3"}}) {
        const std::string text = fmt::format(
            "program @f(%x: {0}[{1}]) -> (y: {0}[{2}]) {{ %0 = abs(%x) %1 = {3}(%0) {4} return %1 "
            "}}",
            type, c.shape, c.result, rule.op, c.attrs);
        SCOPED_TRACE(text);
        ASSERT_OK_AND(const Module m, Parse(text, "rule.opw"));
        Check(m, "split-reductions", Accuracy::kUsual, true);
      }
    }
  }
}

// Sums stay if they are over one axis, over leading axes, or over trailing axes without an
// elementwise op before. They also stay if results must be exact.
TEST_F(RulesTest, ReductionsThatStay) {
  const auto after = [](const std::string& body, const std::string& result,
                        Accuracy accuracy = Accuracy::kUsual) {
    auto m = Parse(
        "program @f(%x: f32[3, 4, 20]) -> (y: f32[" + result + "]) { " + body + " return %y }",
        "t.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    PipelineOptions options = OnlyPasses({"split-reductions", "dead"});
    options.accuracy = accuracy;
    EXPECT_TRUE(RunPasses(*m, options).ok());
    return std::ranges::count(m->functions[0].nodes, "sum", &Node::op);
  };
  EXPECT_EQ(after("%0 = abs(%x) %y = sum(%0)", ""), 2);
  EXPECT_EQ(after("%0 = abs(%x) %y = sum(%0)", "", Accuracy::kExact), 1);
  EXPECT_EQ(after("%0 = abs(%x) %y = sum(%0) {dims = [2]}", "3, 4"), 1);
  EXPECT_EQ(after("%0 = abs(%x) %y = sum(%0) {dims = [0, 1]}", "20"), 1);
  EXPECT_EQ(after("%y = sum(%x)", ""), 1);
  EXPECT_EQ(after("%y = sum(%x) {dims = [1, 2]}", "3"), 1);
  EXPECT_EQ(after("%y = sum(%x) {dims = [0, 2]}", "4"), 2);
  EXPECT_EQ(after("%0 = abs(%x) %y = sum@reference(%0)", ""), 1);
  EXPECT_EQ(after("%0 = abs@reference(%x) %y = sum(%0)", ""), 1);
}

// The residual stream of a transformer, which begins as a sum. Each sum joins the norm after it.
// The last sum, which no norm reads, stays.
TEST_F(RulesTest, ResidualStream) {
  OPWIRE_TRACE_SEED();
  ASSERT_OK_AND(const Module before,
                Parse("program @f(%token: f32[6, 8], %place: f32[8], %w: f32[8], %v: f32[8, 8]) -> "
                      "(y: f32[6, 8]) { %x = add(%token, %place) "
                      "%0 = rms_norm(%x, %w) %1 = matmul(%0, %v) %2 = add(%x, %1) "
                      "%3 = rms_norm(%2, %w) %4 = matmul(%3, %v) %5 = add(%2, %4) %6 = "
                      "rms_norm(%5, %w) %7 = matmul(%6, %v) %8 = add(%5, %7) return %8 }",
                      "t.opw"));
  Module after = before;
  ASSERT_OK_AND(const PipelineReport report, RunPasses(after));
  const auto count = [&](std::string_view op) {
    return std::ranges::count(after.functions[0].nodes, op, &Node::op);
  };
  EXPECT_EQ(count("add_rms_norm"), 2) << Print(after);
  EXPECT_EQ(count("rms_norm"), 1);
  EXPECT_EQ(count("add"), 2);
  EXPECT_EQ(Difference(before, after, random_(), 1e-5, Fill(true)), "") << Print(after);
}

// Sums stay if others read them before, if they are pinned or of two shapes, or if they are one
// kernel with the ops of their terms. They also stay if results must be exact.
TEST_F(RulesTest, NormsThatStay) {
  const auto stays = [](const std::string& body, Accuracy accuracy = Accuracy::kUsual,
                        const std::string& params = "", const std::string& results = "") {
    SCOPED_TRACE(body);
    auto m = Parse("program @f(%x: f32[4, 8], %r: f32[4, 8], %w: f32[8]" + params +
                       ") -> (y: f32[4, 8]" + results + ") { " + body + " }",
                   "t.opw");
    ASSERT_TRUE(m.ok()) << m.status();
    const auto report = RunPasses(*m, {.accuracy = accuracy});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Print(*m).find("add_rms_norm"), std::string::npos) << Print(*m);
  };
  stays("%0 = add(%x, %r) %1 = rms_norm(%0, %w) return %1", Accuracy::kExact);
  stays("%0 = add(%x, %r) %1 = softmax(%0) %2 = rms_norm(%0, %w) return %2, %1", Accuracy::kUsual,
        "", ", z: f32[4, 8]");
  stays("%0 = add@cpu.reference(%x, %r) %1 = rms_norm(%0, %w) return %1");
  stays("%0 = add(%x, %r) %1 = rms_norm@cpu.reference(%0, %w) return %1");
  stays("%0 = add(%x, %w) %1 = rms_norm(%0, %w) return %1");
  stays("%0 = sigmoid(%r) %1 = add(%x, %0) %2 = rms_norm(%1, %w) return %2");
  stays("%0 = add(%x, %p) %1 = rms_norm(%0, %w) return %1, %0", Accuracy::kUsual,
        ", inout %p: f32[4, 8]", ", p: f32[4, 8]");
}

TEST_F(RulesTest, EachShapeRule) {
  OPWIRE_TRACE_SEED();
  const std::map<std::string_view, const char*> programs = {
      // clang-format off
      {"reshape(x) -> x, where the shape is the same", "program @f(%x: f32[2, 3]) -> (y: f32[2, 3]) { %0 = reshape(%x) {shape = [2, 3]} return %0 }"},
      {"reshape(reshape(x)) -> reshape(x)", "program @f(%x: bf16[2, 6]) -> (y: bf16[4, 3]) { %0 = reshape(%x) {shape = [12]} %1 = reshape(%0) {shape = [4, 3]} return %1 }"},
      {"expand(x) -> x, where the shape is the same", "program @f(%x: i8[2, 3]) -> (y: i8[2, 3]) { %0 = expand(%x) {shape = [2, 3]} return %0 }"},
      {"expand(expand(x)) -> expand(x)", "program @f(%x: f32[3, 1]) -> (y: f32[2, 3, 4]) { %0 = expand(%x) {shape = [3, 4]} %1 = expand(%0) {shape = [2, 3, 4]} return %1 }"},
      {"permute(x) -> x, where each axis stays", "program @f(%x: f32[2, 3]) -> (y: f32[2, 3]) { %0 = permute(%x) {dims = [0, -1]} return %0 }"},
      // clang-format on
      {"permute(permute(x)) -> permute(x)",
       "program @f(%x: f64[2, 3, 4, 5]) -> (y: f64[3, 5, 2, 4]) { %0 = permute(%x) {dims = [3, 1, "
       "0, 2]} %1 = permute(%0) {dims = [1, 0, -2, 3]} return %1 }"},
      {"permute(x) -> reshape(x), where all axes of more than one place keep their order",
       "program @f(%x: i16[2, 1, 3, 1, 4]) -> (y: i16[1, 2, 3, 4, 1]) { %0 = permute(%x) {dims = "
       "[1, 0, 2, 4, 3]} return %0 }"},
      {"cast(x) -> x, where the type is the same",
       "program @f(%x: f16[5]) -> (y: f16[5]) { %0 = cast(%x) {dtype = f16} return %0 }"},
      {"cast(cast(x)) -> cast(x), where the first loses nothing",
       "program @f(%x: bf16[40]) -> (y: i8[40], z: f16[40], b: bool[40]) { %0 = cast(%x) {dtype = "
       "f64} %1 = cast(%0) {dtype = i8} %2 = cast(%0) {dtype = f16} %3 = cast(%0) "
       "{dtype = bool} return %1, %2, %3 }"},
      {"cat([x]) -> x",
       "program @f(%x: f32[2, 3]) -> (y: f32[2, 3]) { %0 = cat([%x]) {dim = 1} return %0 }"},
      {"matmul(permute(x), permute(y)) -> matmul(x, y) with transpose_x and transpose_y",
       "program @f(%x: f32[2, 3, 4], %y: f32[5, 3]) -> (z: f32[2, 4, 5]) { %0 = permute(%x) {dims "
       "= [0, 2, 1]} %1 = permute(%y) {dims = [1, 0]} %2 = matmul(%0, %1) return %2 }"},
  };
  for (const Rewrite& rule : ShapeRewrites()) {
    SCOPED_TRACE(std::string(rule.text));
    const auto program = programs.find(rule.text);
    ASSERT_NE(program, programs.end()) << "no program of this test has the rule";
    ASSERT_OK_AND(const Module m, Parse(program->second, "rule.opw"));
    Check(m, "shapes", rule.accuracy, false);
    if (rule.accuracy == Accuracy::kExact) continue;
    Module same = m;
    PipelineOptions options = OnlyPasses({"shapes"});
    options.accuracy = Accuracy::kExact;
    ASSERT_OK(RunPasses(same, options).status());
    EXPECT_EQ(Print(same), Print(m));
  }
}

TEST(Documents, HaveEachPassAndRule) {
  std::ifstream in(OPWIRE_SOURCE "/docs/passes.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  for (const PassRow& pass : PassTable())
    EXPECT_NE(page.find(fmt::format("| `{}` | {}", pass.name,
                                    pass.doc.substr(0, pass.doc.find_first_of(":.")))),
              std::string::npos)
        << pass.name;
  for (const Rule& rule : Rules())
    EXPECT_NE(page.find(fmt::format("| `{}` |", rule.text)), std::string::npos) << rule.text;
}

}  // namespace
}  // namespace opwire

// Row reductions among elementwise nodes: all of them are one kernel, which moves no more bytes
// than it must. Its results are those of the nodes run alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "executor/plan/instance.h"
#include "executor/plan/program.h"
#include "ir/base/element.h"
#include "ir/text/text.h"
#include "kernels/fused/fuser.h"
#include "tests/assert_ok.h"
#include "tests/executor/fused_runs.h"

namespace opwire::executor {
namespace {

using Labels = std::vector<std::string>;

// ---- Groups
// -------------------------------------------------------------------------------------------------

TEST(RowSchedule, SoftmaxIsOneKernel) {
  EXPECT_EQ(Fused(R"(
program @softmax(%x: f32[4, 8]) -> (y: f32[4, 8]) {
  %m = amax(%x) {dims = [1], keepdim = true}
  %0 = sub(%x, %m)
  %1 = exp(%0)
  %s = sum(%1) {dims = [-1], keepdim = true}
  %2 = div(%1, %s)
  return %2
})"),
            Labels{"fused(amax, sub, exp, sum, div)"});
}

TEST(RowSchedule, ALossIsOneKernel) {
  EXPECT_EQ(Fused(R"(
program @loss(%x: f32[2, 4, 8], %t: f32[2, 4, 8]) -> (loss: f32[2, 4]) {
  %m = amax(%x) {dims = [2], keepdim = true}
  %0 = sub(%x, %m)
  %1 = exp(%0)
  %2 = sum(%1) {dims = [2], keepdim = true}
  %3 = log(%2)
  %4 = sub(%0, %3)
  %5 = mul(%4, %t)
  %6 = sum(%5) {dims = [2]}
  %7 = neg(%6)
  return %7
})"),
            Labels{"fused(amax, sub, exp, sum, log, sub, mul, sum, neg)"});
}

TEST(RowSchedule, OtherReductionsEndGroups) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 8]) -> (y: f32[4, 8], z: f32[]) {
  %0 = exp(%x)
  %1 = sum(%0) {dims = [0], keepdim = true}
  %2 = div(%0, %1)
  %3 = neg(%2)
  %4 = sum(%3)
  return %3, %4
})"),
            (Labels{"fused(exp, sum)", "fused(div, neg)", "sum"}))
      << "what is read of whole columns waits for them, and the last reduces all";
}

TEST(RowSchedule, AShortResultIsNoRow) {
  // [8] is read along the elements, not the rows.
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[8, 8]) -> (y: f32[8, 8]) {
  %0 = abs(%x)
  %1 = sum(%0) {dims = [1]}
  %2 = neg(%1)
  %3 = add(%0, %2)
  return %3
})"),
            (Labels{"fused(abs, sum, neg)", "add"}));
}

TEST(RowSchedule, ChainsOfDifferentRowsArePartedWhereTheyMeet) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[8, 16], %y: f32[8, 4]) -> (x: f32[8, 16], y: f32[8, 4]) {
  %0 = sum(%x) {dims = [1], keepdim = true}
  %1 = sum(%y) {dims = [1], keepdim = true}
  %2 = add(%0, %1)
  %3 = mul(%x, %2)
  %4 = mul(%y, %2)
  return %3, %4
})"),
            (Labels{"sum", "sum", "fused(add, mul)", "mul"}))
      << "both sums are waited for";
}

// ---- Results
// -------------------------------------------------------------------------------------------------

using RowFusionTest = FusedRunsTest;

// Compares plain ops with the op that they spell out. On GPUs, where each kernel is compiled, runs
// every fifth case unless OPWIRE_PROGRAMS is set.
TEST_F(RowFusionTest, WhatIsWrittenPlainlyIsTheOp) {
  struct Case {
    const char* body;
    const char* op;
  };
  const Case cases[] = {
      {R"(  %m = amax(%x) {{dims = [-1], keepdim = true}}
  %0 = sub(%x, %m)
  %1 = exp(%0)
  %s = sum(%1) {{dims = [-1], keepdim = true}}
  %y = div(%1, %s)
)",
       "softmax(%x)"},
      {R"(  %m = amax(%x) {{dims = [-1], keepdim = true}}
  %0 = sub(%x, %m)
  %1 = exp(%0)
  %s = sum(%1) {{dims = [-1], keepdim = true}}
  %2 = log(%s)
  %y = sub(%0, %2)
)",
       "log_softmax(%x)"},
      {R"(  %0 = mul(%x, %x)
  %1 = mean(%0) {{dims = [-1], keepdim = true}}
  %e = full() {{value = 1e-5, dtype = {0}}}
  %2 = add(%1, %e)
  %3 = rsqrt(%2)
  %4 = mul(%x, %3)
  %y = mul(%4, %w)
)",
       "rms_norm(%x, %w) {{eps = 1e-5}}"},
      {R"(  %m = mean(%x) {{dims = [-1], keepdim = true}}
  %0 = sub(%x, %m)
  %1 = mul(%0, %0)
  %2 = mean(%1) {{dims = [-1], keepdim = true}}
  %e = full() {{value = 1e-5, dtype = {0}}}
  %3 = add(%2, %e)
  %4 = rsqrt(%3)
  %5 = mul(%0, %4)
  %6 = mul(%5, %w)
  %y = add(%6, %b)
)",
       "layer_norm(%x, %w, %b) {{eps = 1e-5}}"},
  };
  int every = device_->info().host_memory || std::getenv("OPWIRE_PROGRAMS") ? 1 : 5, number = 0;
  for (const char* const type : {"f32", "bf16", "f16", "f64"}) {
    for (const char* const shape :
         {"3, 10", "2, 5, 127", "40, 128", "7, 1000", "30, 4097", "2, 60001", "1, 1"}) {
      for (const Case& one : cases) {
        if (number++ % every != 0) continue;
        const std::string length = std::string(shape).substr(std::string(shape).rfind(' ') + 1);
        const std::string head = fmt::format(
            "program @f(%x: {0}[{1}], %w: {0}[{2}], %b: {0}[{2}]) -> (y: {0}[{1}]) {{\n", type,
            shape, length);
        const auto module = [&](const std::string& body) {
          return Parse(head + body + "  return %y\n}\n", "t").value();
        };
        const Module plain = module(fmt::format(fmt::runtime(one.body), type)),
                     op = module("  %y = " + fmt::format(fmt::runtime(one.op)) + "\n");
        const DType dtype = plain.functions[0].params[0].type.dtype;
        const auto a = Run(plain, Seed(), true, FillSmall), b = Run(op, Seed(), true, FillSmall);
        ASSERT_TRUE(a[0] == "OK" && b[0] == "OK") << a[0] << b[0];
        EXPECT_LE(Difference(ValuesOf(dtype, a[1]), ValuesOf(dtype, b[1])), Tolerance(dtype))
            << one.op << " of " << type << "[" << shape << "]";
      }
    }
  }
}

TEST_F(RowFusionTest, RowsOfNothing) {
  const auto text = [](const char* reduction) {
    return fmt::format(
        "program @f(%x: f32[3, ?n]) -> (y: f32[3], z: f32[3, ?n]) {{\n  %0 = neg(%x)\n  %1 = "
        "{}(%0) {{dims = [1]}}\n  %2 = abs(%1)\n  return %2, %0\n}}\n",
        reduction);
  };
  for (const bool fuses : {true, false}) {
    Start(fuses);
    for (const auto& [reduction, value] : {std::pair{"sum", 0.0f}, {"prod", 1.0f}}) {
      ASSERT_TRUE(Load(c_, 1, text(reduction)).ok());
      const Answer a = Ask(c_, RunOf(1).Array({}, {3, 0}).Inline().Inline());
      ASSERT_TRUE(a.ok()) << a.status;
      EXPECT_EQ(a.Floats(0), std::vector<float>(3, value));
    }
    ASSERT_TRUE(Load(c_, 1, text("amax")).ok());
    const Answer refused = Ask(c_, RunOf(1).Array({}, {3, 0}).Inline().Inline());
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused.status;
    EXPECT_NE(MessageOf(refused.status).find("an extent of 0 has no largest or smallest element"),
              std::string::npos)
        << refused.status;
    EXPECT_TRUE(Ask(c_, RunOf(1).Array({1, 2, 3}, {3, 1}).Inline().Inline()).ok())
        << "the session goes on";
  }
}

TEST_F(RowFusionTest, WeightsAreReplacedInTheirPlaces) {
  // Scales rows in place to magnitudes with a sum of 1, and counts by row how often that happened.
  const char* const text = R"(
program @f(inout %w: f32[300, 40], inout %n: f32[300, 1]) -> (w: f32[300, 40], n: f32[300, 1]) {
  %magnitude = abs(%w)
  %0 = sum(%magnitude) {dims = [1], keepdim = true}
  %1 = div(%w, %0)
  %2 = div(%0, %0)
  %3 = add(%n, %2)
  return %1, %3
})";
  EXPECT_EQ(Fused(text).size(), 1u);
  const auto fused = Run(Parse(text, "t").value(), Seed(), true, FillSmall),
             alone = Run(Parse(text, "t").value(), Seed(), false, FillSmall);
  ASSERT_EQ(fused[0], "OK");
  for (size_t i : {1, 2})
    EXPECT_LE(Difference(ValuesOf(DType::kF32, fused[i]), ValuesOf(DType::kF32, alone[i])), 2e-4);
}

TEST_F(RowFusionTest, MaximaOfNegatedIntegers) {
  // A compiler emitted max(-a, b, c) as one instruction.
  const char* const text = R"(
program @f(%x: i32[1, 5000]) -> (y: i32[1, 1], z: i32[1, 5000]) {
  %0 = neg(%x)
  %1 = amax(%0) {dims = [-1], keepdim = true}
  %2 = sub(%0, %1)
  return %1, %2
})";
  EXPECT_EQ(Fused(text).size(), 1u);
  const auto positive = [](const Param&, std::string& bytes, std::mt19937_64& random) {
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const int32_t v = 1 + static_cast<int32_t>(random() % 1000);
      std::memcpy(bytes.data() + at, &v, 4);
    }
  };
  const auto fused = Run(Parse(text, "t").value(), Seed(), true, positive),
             alone = Run(Parse(text, "t").value(), Seed(), false, positive);
  ASSERT_EQ(fused[0], "OK");
  EXPECT_EQ(ValuesOf(DType::kI32, fused[1]), ValuesOf(DType::kI32, alone[1]));
  EXPECT_EQ(ValuesOf(DType::kI32, fused[2]), ValuesOf(DType::kI32, alone[2]));
}

// A random graph over rows: elementwise ops whose values stay near 1, reductions, and broadcast
// tensors. All nodes are connected.
class RandomRows {
 public:
  explicit RandomRows(std::mt19937_64& random) : random_(random) {
    const char* const types[] = {"f32", "f32", "f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
    type_ = types[Below(std::size(types))];
    whole_ = type_[0] == 'i' || type_[0] == 'u';
    const int64_t lengths[] = {2, 3, 7, 16, 64, 127, 128, 129, 500, 1023, 4096, 5000, 20011, 60001};
    const int64_t length = lengths[Below(Below(3) ? 10 : std::size(lengths))];
    const uint64_t most = static_cast<uint64_t>(std::max<int64_t>(2, 40000 / length)),
                   outer = 1 + Below(std::min<uint64_t>(4, most));
    prefix_ = Below(3) ? fmt::format("{}, ", 1 + Below(most))
                       : fmt::format("{}, {}, ", outer, 1 + Below(most / outer));
    length_ = std::to_string(length);
    Param(prefix_ + length_, kFull);
    if (Below(2)) Param(prefix_ + length_, kFull);
    if (Below(2)) Param(length_, kFull);
    if (Below(2)) Param(prefix_ + "1", kRow);
    if (Below(3) == 0) Param("1", kFull);
    const int count = 3 + static_cast<int>(Below(14));
    for (int i = 0; i < count; ++i) Node();
    Finish();
  }
  const std::string& text() const { return text_; }
  bool is_whole() const { return whole_; }

 private:
  enum Place { kFull, kRow };
  struct Value {
    std::string name;
    Place place;
    bool read = true;
  };

  uint64_t Below(uint64_t n) { return random_() % n; }
  void Param(const std::string& shape, Place place) {
    params_ +=
        fmt::format("{}%p{}: {}[{}]", values_.empty() ? "" : ", ", values_.size(), type_, shape);
    values_.push_back({fmt::format("%p{}", values_.size()), place});
  }
  Value& Any(Place at_most) {
    while (true) {
      Value& v = values_[Below(values_.size())];
      if (at_most == kFull || v.place == kRow) return v;
    }
  }
  void Node() {
    // Each node reads the newest value, so that all is one graph: the last value with one before
    // it.
    Value& last = values_.back();
    const bool reductions = last.place == kFull && made_ > 0 && Below(3) == 0;
    const std::string name = fmt::format("%{}", made_);
    last.read = true;
    if (made_ == 0) {
      body_ += fmt::format("  {} = {}({})\n", name, type_[0] == 'u' ? "bitwise_not" : "neg",
                           values_[0].name);  // of the rows' shape
      values_.push_back({name, kFull, false});
    } else if (reductions) {
      const char* const floats[] = {"mean", "amax", "amin"};
      const char* const wholes[] = {"sum", "amax", "amin", "prod"};
      body_ += fmt::format("  {} = {}({}) {{dims = [-1], keepdim = true}}\n", name,
                           whole_ ? wholes[Below(4)] : floats[Below(3)], last.name);
      values_.push_back({name, kRow, false});
    } else {
      const Place other = Below(2) ? kFull : last.place;
      Value& second = Any(other);
      second.read = true;
      const Place place = last.place == kRow && second.place == kRow ? kRow : kFull;
      const bool full_shaped = place == kRow || IsFull(last) || IsFull(second);
      const char* const binary[] = {"maximum", "minimum", "sub", "add"};
      const char* const unary[] = {"tanh", "sigmoid", "abs", "neg", "relu"};
      if (Below(3) == 0 || !full_shaped) {
        const char* op = whole_ ? "neg" : unary[Below(5)];
        if (type_[0] == 'u') op = "bitwise_not";
        body_ += fmt::format("  {} = {}({})\n", name, op, last.name);
        values_.push_back({name, last.place, false});
      } else {
        const bool swap = Below(2) != 0;
        body_ += fmt::format("  {} = {}({}, {})\n", name, binary[Below(4)],
                             swap ? second.name : last.name, swap ? last.name : second.name);
        values_.push_back({name, place, false});
      }
    }
    ++made_;
  }
  // Returns whether it has the rows' whole shape, and is not only broadcast to it.
  bool IsFull(const Value& v) const {
    return v.place == kFull && (v.name[1] != 'p' || v.name == "%p0");
  }
  void Finish() {
    std::string results, returned;
    int r = 0;
    for (const Value& v : values_) {
      if (v.read && &v != &values_.back()) continue;
      results += fmt::format("{}r{}: {}[{}]", r ? ", " : "", r, type_,
                             v.place == kFull ? prefix_ + length_ : prefix_ + "1");
      returned += fmt::format("{}{}", r++ ? ", " : "", v.name);
    }
    text_ = fmt::format("program @f({}) -> ({}) {{\n{}  return {}\n}}\n", params_, results, body_,
                        returned);
  }

  std::mt19937_64& random_;
  std::string type_, prefix_, length_, params_, body_, text_;
  bool whole_ = false;
  int made_ = 0;
  std::vector<Value> values_;
};

TEST_F(RowFusionTest, RandomGraphsAreOneKernelThatMovesLittle) {
  ExpectOneKernelEach([](std::mt19937_64& random) { return RandomRows(random).text(); }, FillSmall);
}

// Compares a sum of two numbers with the largest of such sums, in one kernel or with stored values;
// infinities of the type; casts in between.
TEST_F(RowFusionTest, TestsAndCastsSeeRoundedValues) {
  for (const char* const type : {"f16", "bf16"}) {
    const std::string head = fmt::format("program @f(%x: {0}[6, 40], %y: {0}[6, 40]) -> ", type);
    const std::string programs[] = {
        head +
            "(is: bool[6, 40]) { %0 = mul(%x, %y) %1 = amax(%0) {dims = [1], keepdim = true} %2 = "
            "eq(%0, %1) return %2 }",
        head +
            fmt::format("(m: {0}[6, 1], is: bool[6, 40]) {{ %0 = mul(%x, %y) %1 = amin(%0) {{dims "
                        "= [1], keepdim = true}} %2 = mul(%x, %y) %3 = ne(%2, %1) return %1, %3 }}",
                        type),
        head + fmt::format("(is: bool[6, 40]) {{ %c = full() {{value = 40000.0, dtype = {0}}} %0 = "
                           "mul(%x, %c) %1 = isinf(%0) return %1 }}",
                           type),
        head +
            fmt::format(
                "(z: f32[6, 40], is: bool[6, 40]) {{ %c = full() {{value = 0.3, dtype = {0}}} %0 = "
                "mul(%x, %y) %1 = cast(%0) {{dtype = f32}} %2 = lt(%0, %c) return %1, %2 }}",
                type)};
    for (const std::string& text : programs) {
      SCOPED_TRACE(text);
      ASSERT_OK_AND(const Module m, Parse(text, "t"));
      EXPECT_EQ(Run(m, 7, true, FillSmall), Run(m, 7, false, FillSmall));
    }
  }
}

}  // namespace
}  // namespace opwire::executor

// Matmuls of a few rows with the nodes before and after: which nodes are one step, and that the
// results are those of the nodes run alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "executor/plan/program.h"
#include "ir/base/element.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "kernels/fused/fuser.h"
#include "tests/assert_ok.h"
#include "tests/executor/fused_runs.h"

namespace opwire::executor {
namespace {

using Labels = std::vector<std::string>;

// ---- Groups, as the emulated GPU has them
// ---------------------------------------------------------------------------------------

Device& Emulated() {
  static const std::unique_ptr<Device> device = OpenDevice("emu:0", {}).value();
  return *device;
}

// Returns the groups of a program, without views.
Labels UnitsOf(const std::string& text, const std::shared_ptr<fused::Fuser>& fuser = nullptr) {
  static const std::shared_ptr<fused::Fuser> built = BuildFuser(Emulated());
  const auto set = std::make_shared<KernelSet>(
      KernelSet{.fuser = fuser ? fuser : built, .variants = BuildVariantTable(Emulated())});
  const auto program =
      PrepareProgram(Serialise(Parse(text, "t").value()), set, ExecutorLimits()).value();
  const Function& f = program->module.functions[0];
  Labels out;
  for (const Unit& unit : program->plans[0].schedule.units) {
    if (unit.group < 0) {
      if (program->plans[0].views.kinds[unit.node] == ViewKind::kNone &&
          f.nodes[unit.node].op != "reshape")
        out.push_back(f.nodes[unit.node].op);
      continue;
    }
    Labels ops;
    for (const uint32_t n :
         program->plans[0].schedule.groups[static_cast<size_t>(unit.group)].nodes)
      ops.push_back(f.nodes[n].op);
    out.push_back(fmt::format("({})", fmt::join(ops, ", ")));
  }
  return out;
}

TEST(ProductSchedule, ALayerOfADecoderIsFiveSteps) {
  EXPECT_EQ(
      UnitsOf(R"(
program @layer(%x: bf16[1, 1, 64], %y: bf16[1, 1, 64], inout %keys: bf16[1, 2, 16, 16], inout %values: bf16[1, 2, 16, 16], %at: i64[], %n: i64[], %w1: bf16[64], %w2: bf16[64],
               %wq: bf16[64, 64], %wk: bf16[32, 64], %wv: bf16[32, 64], %wo: bf16[64, 64], %wg: bf16[96, 64], %wu: bf16[96, 64], %wd: bf16[64, 96])
    -> (keys: bf16[1, 2, 16, 16], values: bf16[1, 2, 16, 16], r: bf16[1, 1, 64], out: bf16[1, 1, 64]) {
  %p = reshape(%at) {shape = [1]}
  %h, %r = add_rms_norm(%x, %y, %w1)
  %q0 = linear(%h, %wq)
  %q1 = reshape(%q0) {shape = [1, 4, 1, 16]}
  %q = rotary_embedding(%q1, %p)
  %k0 = linear(%h, %wk)
  %k1 = reshape(%k0) {shape = [1, 2, 1, 16]}
  %k = rotary_embedding(%k1, %p) {interleaved = true}
  %v0 = linear(%h, %wv)
  %v1 = reshape(%v0) {shape = [1, 1, 2, 16]}
  %v = permute(%v1) {dims = [0, 2, 1, 3]}
  %keys2 = kv_append(%keys, %k, %at)
  %values2 = kv_append(%values, %v, %at)
  %a, %l = kv_attention(%q, %keys2, %values2, %n)
  %a1 = reshape(%a) {shape = [1, 1, 64]}
  %o = linear(%a1, %wo)
  %g, %r2 = add_rms_norm(%r, %o, %w2)
  %g0 = linear(%g, %wg) {activation = "silu"}
  %u0 = linear(%g, %wu)
  %m = mul(%g0, %u0)
  %d = linear(%m, %wd)
  return %keys2, %values2, %r2, %d
})"),
      (Labels{"(add_rms_norm, linear, reshape, rotary_embedding, linear, reshape, "
              "rotary_embedding, linear, reshape, permute, kv_append, kv_append)",
              "kv_attention", "(linear)", "(add_rms_norm, linear, linear, mul)", "(linear)"}));
}

TEST(ProductSchedule, WhatIsReadElsewhereIsMadeToo) {
  const std::string head =
      "program @f(%x: f32[2, 8], %v: f32[4, 8], %w: f32[4, 8], %z: f32[2, 4]) -> ";
  EXPECT_EQ(UnitsOf(head + "(y: f32[2, 4], p: f32[2, 4]) { %a = linear(%x, %v) %b = linear(%x, %w) "
                           "%y = add(%a, %z) return %y, %a }"),
            (Labels{"(linear, linear)", "add"}));
  EXPECT_EQ(UnitsOf(head + "(y: f32[2, 4], q: f32[2, 4]) { %a = linear(%x, %v) %b = linear(%x, %w) "
                           "%y = add(%a, %z) return %y, %b }"),
            (Labels{"(linear, linear, add)"}));
  EXPECT_EQ(UnitsOf(head + "(y: f32[2, 4], h: f32[2, 8]) { %h = rms_norm(%x, _) %a = linear(%h, "
                           "%v) %b = linear(%h, %w) %y = add(%a, %b) return %y, %h }"),
            (Labels{"rms_norm", "(linear, linear, add)"}));
}

TEST(ProductSchedule, WhatIsNotThereYetStaysBehind) {
  const std::string head =
      "program @f(%x: f32[1, 8], %v: f32[4, 8], %w: f32[4, 8], %z: f32[1, 4]) -> ";
  EXPECT_EQ(UnitsOf(head + "(y: f32[1, 4], q: f32[1, 4]) { %a = linear(%x, %v) %b = linear(%x, %w) "
                           "%s, %i = topk(%z) {k = 4} %y = add(%a, %s) return %y, %b }"),
            (Labels{"(linear, linear)", "topk", "add"}));
  EXPECT_EQ(UnitsOf(head + "(y: f32[1, 4], q: f32[1, 4]) { %s, %i = topk(%z) {k = 4} %a = "
                           "linear(%x, %v) %b = linear(%x, %w) %y = add(%a, %s) return %y, %b }"),
            (Labels{"topk", "(linear, linear, add)"}));
  // Another node reads the norm's sum between the norm and the matmuls.
  EXPECT_EQ(UnitsOf("program @f(%x: f32[1, 8], %r: f32[1, 8], %v: f32[8, 8]) -> (y: f32[1, 8], s: "
                    "f32[1, 8]) {"
                    " %h, %s = add_rms_norm(%x, %r, _) %t, %i = topk(%s) {k = 8} %a = linear(%h, "
                    "%v) %y = add(%a, %t) return %y, %s }"),
            (Labels{"add_rms_norm", "topk", "(linear, add)"}));
  // The added value is the norm's own sum.
  EXPECT_EQ(
      UnitsOf("program @f(%x: f32[1, 8], %r: f32[1, 8], %v: f32[8, 8]) -> (y: f32[1, 8]) { %h, %s "
              "= add_rms_norm(%x, %r, _) %a = linear(%h, %v) %y = add(%a, %s) return %y }"),
      (Labels{"(add_rms_norm, linear)", "add"}));
}

TEST(ProductSchedule, ManyRowsPinsAndOtherTypesStay) {
  const std::string body = " { %a = linear(%x, %v) %b = linear(%x, %w) return %a, %b }";
  EXPECT_EQ(UnitsOf("program @f(%x: f32[3, 8], %v: f32[4, 8], %w: f32[4, 8]) -> (a: f32[3, 4], b: "
                    "f32[3, 4])" +
                    body),
            (Labels{"linear", "linear"}));
  EXPECT_EQ(UnitsOf("program @f(%x: f64[1, 8], %v: f64[4, 8], %w: f64[4, 8]) -> (a: f64[1, 4], b: "
                    "f64[1, 4])" +
                    body),
            (Labels{"linear", "linear"}));
  EXPECT_EQ(UnitsOf("program @f(%x: f32[1, 9], %v: f32[4, 9], %w: f32[4, 9]) -> (a: f32[1, 4], b: "
                    "f32[1, 4])" +
                    body),
            (Labels{"linear", "linear"}))
      << "no whole vectors";
  EXPECT_EQ(
      UnitsOf("program @f(%x: f32[1, 8], %v: f32[4, 8], %w: f32[4, 8]) -> (a: f32[1, 4], b: f32[1, "
              "4]) { %a = linear@portable(%x, %v) %b = linear(%x, %w) return %a, %b }"),
      (Labels{"linear", "(linear)"}));
}

// Supports matmuls of many rows, as the fuser for Hopper does; runs nothing.
class FuserOfMany : public fused::Fuser {
 public:
  std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram&) override { return kernel_; }
  std::shared_ptr<const opw_kernel> GetProducts(const fused::ProductProgram& program) override {
    return outputs.push_back(program.sections[0].finish.outputs().size()), kernel_;
  }
  bool HasProducts() const override { return true; }
  bool HasEpilogues() const override { return true; }
  bool Settled() const override { return true; }

  std::vector<size_t> outputs;  // of the requested kernels

 private:
  const std::shared_ptr<const opw_kernel> kernel_ = std::make_shared<const opw_kernel>();
};

TEST(ProductSchedule, ProductsOfManyRowsTakeWhatAloneReadsThem) {
  const auto fuser = std::make_shared<FuserOfMany>();
  const std::string head =
      "program @f(%x: bf16[300, 8], %v: bf16[16, 8], %b: bf16[16], %z: bf16[300, 16]) -> ";
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16]) { %a = linear(%x, %v, %b) {activation = \"gelu\"} "
                           "%y = add(%a, %z) return %y }",
                    fuser),
            (Labels{"(linear, add)"}));
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16], g: bf16[300, 16]) { %a = linear(%x, %v) %g = "
                           "gelu(%a) %y = mul(%g, %z) return %y, %g }",
                    fuser),
            (Labels{"(linear, gelu, mul)"}));
  EXPECT_EQ(fuser->outputs, (std::vector<size_t>{1, 2}));
  // Others read it; no elementwise node reads it; the added value does not exist yet; it takes a
  // parameter's place.
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16], a: bf16[300, 16]) { %a = linear(%x, %v, %b) %y = "
                           "gelu(%a) return %y, %a }",
                    fuser),
            (Labels{"linear", "gelu"}));
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16]) { %a = linear(%x, %v) return %a }", fuser),
            (Labels{"linear"}));
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16]) { %a = linear(%x, %v) %s, %i = topk(%z) {k = 16} %y "
                           "= add(%a, %s) return %y }",
                    fuser),
            (Labels{"linear", "topk", "add"}));
  EXPECT_EQ(UnitsOf("program @f(%x: bf16[300, 8], %v: bf16[16, 8], inout %z: bf16[300, 16]) -> (z: "
                    "bf16[300, 16]) { %a = linear(%x, %v) %y = add(%a, %z) return %y }",
                    fuser),
            (Labels{"linear", "add"}));
  // Two matmuls whose results are multiplied are two kernels: the second one reads the first one's
  // result.
  EXPECT_EQ(UnitsOf(head + "(y: bf16[300, 16]) { %a = linear(%x, %v) %c = linear(%x, %v, %b) %y = "
                           "mul(%a, %c) return %y }",
                    fuser),
            (Labels{"linear", "(linear, mul)"}));
}

// ---- Results
// -------------------------------------------------------------------------------------------------

// Weights so small that matmuls of any number of terms give about 1: in a product of two matmuls,
// each factor is multiplied by the other's error.
void Fill(const DimTable& dims, const Param& p, std::string& bytes, std::mt19937_64& random) {
  FillSmall(p, bytes, random);
  const DType type = p.type.dtype;
  if (!p.name.starts_with("w") || !kFloats.Has(type)) return;
  const double scale = 1 / std::sqrt(static_cast<double>(dims.ConstantValue(p.type.shape.back())));
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(DTypeBytes(type))) {
    const uint64_t bits = ElementBits(type, ElementValue(type, bytes.data() + at) * scale);
    std::memcpy(bytes.data() + at, &bits, static_cast<size_t>(DTypeBytes(type)));
  }
}

class ProductFusionTest : public FusedRunsTest {
 protected:
  // Expects equal results with groups and without. `grouped`: some groups must contain matmuls.
  // OPWIRE_PROGRAMS: the number of programs.
  void Compare(uint64_t usual, bool grouped,
               const std::function<std::string(std::mt19937_64&)>& text) {
    const uint64_t programs = ProgramCount(usual);
    double worst = 0;
    for (uint64_t i = 0; i < programs; ++i) {
      const uint64_t seed = Seed() + i;
      std::mt19937_64 random(seed);
      const std::string written = text(random);
      SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << written);
      ASSERT_OK_AND(const Module m, Parse(written, "t"));
      const FillParam fill = std::bind_front(Fill, std::cref(m.dims));
      const auto fused = Run(m, seed, true, fill);
      if (grouped) {
        const auto set =
            std::make_shared<KernelSet>(KernelSet{.fuser = built_, .variants = variants_});
        ASSERT_OK_AND(const std::shared_ptr<Program> program,
                      PrepareProgram(Serialise(m), set, ExecutorLimits()));
        const auto is_product = [&](uint32_t n) { return m.functions[0].nodes[n].op == "linear"; };
        ASSERT_TRUE(std::ranges::any_of(
            program->plans[0].schedule.groups,
            [&](const FusedGroup& g) { return std::ranges::any_of(g.nodes, is_product); }));
      }
      const auto alone = Run(m, seed, false, fill);
      ASSERT_TRUE(fused[0] == "OK" && alone[0] == "OK") << fused[0] << alone[0];
      ASSERT_EQ(fused.size(), alone.size());
      for (size_t r = 1; r < alone.size(); ++r) {
        const DType type = m.functions[0].params[0].type.dtype;
        const double d =
            Difference(ValuesOf(type, fused[r]), ValuesOf(type, alone[r])) / Tolerance(type);
        worst = std::max(worst, d);
        ASSERT_LE(d, 2) << "result " << r - 1;
      }
    }
    fmt::print("{} programs; differences up to {:.2f} of the bound\n", programs, worst);
  }
};

int64_t Below(std::mt19937_64& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}
constexpr const char* kTypes[] = {"f32", "f16", "bf16"};

// Writes x, with a norm or without, to `body`. Returns its name.
std::string Rows(std::mt19937_64& random, const char* type, int64_t rows, int64_t terms,
                 std::string& params, std::string& body, std::string& results,
                 std::string& returned) {
  params = fmt::format("%x: {}[{}, {}]", type, rows, terms);
  if (Below(random, 3) == 0) return "%x";
  const bool adds = Below(random, 2) == 0, weighted = Below(random, 2) == 0;
  if (weighted) params += fmt::format(", %nw: {}[{}]", type, terms);
  const char* const weight = weighted ? "%nw" : "_";
  if (!adds) {
    body += fmt::format("%h = rms_norm(%x, {}) {{eps = 0.01}}\n", weight);
    return "%h";
  }
  params += fmt::format(", %res: {}[{}, {}]", type, rows, terms);
  body += fmt::format("%h, %sum = add_rms_norm(%x, %res, {})\n", weight);
  results += fmt::format("sum: {}[{}, {}]", type, rows, terms);
  returned += "%sum";
  return "%h";
}

TEST_F(ProductFusionTest, ElementwiseBehindProducts) {
  Start(true);
  Compare(40, built_->HasProducts(), [](std::mt19937_64& random) {
    const char* const type = kTypes[Below(random, 3)];
    const int64_t rows = 1 + Below(random, 2),
                  terms = 8 * (1 + Below(random, Below(random, 3) == 0 ? 200 : 20));
    std::string params, body, results, returned;
    const std::string x = Rows(random, type, rows, terms, params, body, results, returned);
    const int64_t sections = 1 + Below(random, 3);
    for (int64_t s = 0; s < sections; ++s) {
      const int64_t columns = 1 + Below(random, 70), products = 1 + Below(random, 2);
      const std::string shape = fmt::format("{}[{}, {}]", type, rows, columns);
      for (int64_t p = 0; p < products; ++p) {
        params += fmt::format(", %w{}{}: {}[{}, {}]", s, p, type, columns, terms);
        const bool biased = Below(random, 3) == 0;
        if (biased) params += fmt::format(", %b{}{}: {}[{}]", s, p, type, columns);
        const char* const activations[] = {"none", "relu", "gelu", "silu", "gelu_tanh"};
        body +=
            fmt::format("%y{0}{1} = linear({2}, %w{0}{1}, {3}) {{activation = \"{4}\"}}\n", s, p, x,
                        biased ? fmt::format("%b{}{}", s, p) : "_", activations[Below(random, 5)]);
      }
      std::string y = fmt::format("%y{}0", s);
      const bool reads = Below(random, 2) == 0;
      if (reads) params += fmt::format(", %z{}: {}", s, shape);
      if (products == 2)
        body += fmt::format("%m{0} = mul(%y{0}0, %y{0}1)\n", s), y = fmt::format("%m{}", s);
      if (reads) body += fmt::format("%a{0} = add({1}, %z{0})\n", s, y), y = fmt::format("%a{}", s);
      if (Below(random, 3) == 0)
        body += fmt::format(
            "%half{0} = full() {{value = 0.5, dtype = {2}}}\n%n{0} = mul({1}, %half{0})\n", s, y,
            type),
            y = fmt::format("%n{}", s);
      results += fmt::format("{}r{}: {}", results.empty() ? "" : ", ", s, shape);
      returned += fmt::format("{}{}", returned.empty() ? "" : ", ", y);
      if (products == 2 && reads && Below(random, 3) == 0)
        results += fmt::format(", q{}: {}", s, shape), returned += fmt::format(", %m{}", s);
    }
    // A single matmul cannot be joined with another one, so there are always two of the same rows.
    params += fmt::format(", %wl: {}[5, {}]", type, terms);
    body += fmt::format("%last = linear({}, %wl)\n", x);
    return fmt::format("program @f({}) -> ({}, last: {}[{}, 5]) {{\n{}return {}, %last\n}}", params,
                       results, type, rows, body, returned);
  });
}

TEST_F(ProductFusionTest, HeadsThatAreTurnedAndAppended) {
  Start(true);
  Compare(40, built_->HasProducts(), [](std::mt19937_64& random) {
    const char* const type = kTypes[Below(random, 3)];
    const int64_t terms = 8 * (1 + Below(random, 30)), depth = 2 * (1 + Below(random, 12)),
                  heads = 1 + Below(random, 5), kept = 1 + Below(random, 3),
                  places = 7 + Below(random, 5);
    std::string params, body, results, returned;
    std::string x = Rows(random, type, 1, terms, params, body, results, returned);
    const bool wide = Below(random, 2) == 0, interleaved = Below(random, 2) == 0;
    const std::string cache = fmt::format("{}[1, {}, {}, {}]", type, kept, places, depth),
                      turn =
                          fmt::format("{{interleaved = {}, theta = {}, scale = {}}}", interleaved,
                                      100.0 + static_cast<double>(Below(random, 1000)),
                                      0.5 + static_cast<double>(Below(random, 3)));
    params += fmt::format(
        ", %wq: {0}[{1}, {4}], %wk: {0}[{2}, {4}], %wv: {0}[{2}, {4}], inout %keys: {3}, inout "
        "%values: {3}, %p: {5}[1], %at: {6}[]",
        type, heads * depth, kept * depth, cache, terms, wide ? "i64" : "i32",
        Below(random, 2) == 0 ? "i64" : "i32");
    const auto product = [&](const char* name, int64_t count) {
      body += fmt::format("%{0}0 = linear({1}, %w{0})\n", name, x);
      if (Below(random, 2) == 0)
        body += fmt::format("%{0}1 = reshape(%{0}0) {{shape = [1, {1}, 1, {2}]}}\n", name, count,
                            depth);
      else
        body += fmt::format(
            "%{0}2 = reshape(%{0}0) {{shape = [1, 1, {1}, {2}]}}\n%{0}1 = permute(%{0}2) {{dims = "
            "[0, 2, 1, 3]}}\n",
            name, count, depth);
    };
    product("q", heads);
    product("k", kept);
    product("v", kept);
    body += fmt::format("%q = rotary_embedding(%q1, %p) {0}\n", turn);
    const bool turned = Below(random, 4) != 0;
    if (turned) body += fmt::format("%k = rotary_embedding(%k1, %p) {0}\n", turn);
    body += fmt::format("%nk = kv_append(%keys, {}, %at)\n%nv = kv_append(%values, %v1, %at)\n",
                        turned ? "%k" : "%k1");
    return fmt::format(
        "program @f({}) -> ({}keys: {}, values: {}, q: {}[1, {}, 1, {}]) {{\n{}return {}%nk, %nv, "
        "%q\n}}",
        params, results.empty() ? "" : results + ", ", cache, cache, type, heads, depth, body,
        returned.empty() ? "" : returned + ", ");
  });
}

TEST_F(ProductFusionTest, APositionOutOfRangeIsNamed) {
  ASSERT_OK_AND(const Module m,
                Parse("program @f(%x: f32[1, 8], %w: f32[8, 8], %v: f32[8, 8], inout %c: f32[2, 5, "
                      "4], %at: i64[]) -> (c: f32[2, 5, 4], y: f32[1, 8]) {"
                      " %k = linear(%x, %w) %y = linear(%x, %v) %h = reshape(%k) {shape = [2, 1, "
                      "4]} %d = kv_append(%c, %h, %at) return %d, %y }",
                      "t"));
  for (const bool fuses : {true, false}) {
    const auto outcome =
        Run(m, 1, fuses, [](const Param& p, std::string& bytes, std::mt19937_64& random) {
          FillSmall(p, bytes, random);
          const int64_t beyond = 5;
          if (p.type.dtype == DType::kI64) std::memcpy(bytes.data(), &beyond, sizeof beyond);
        });
    EXPECT_NE(
        outcome[0].find("kv_append: operand position has a value outside its domain at position 0"),
        std::string::npos)
        << outcome[0];
  }
}

TEST_F(ProductFusionTest, ElementwiseBehindProductsOfManyRows) {
  Start(true);
  if (!built_->HasEpilogues()) GTEST_SKIP() << "this device has no such kernels";
  // On GPUs, whole vectors of 16 bits. On CPUs, more sums than their caches hold.
  const bool on_gpu = built_->HasProducts();
  Compare(24, true, [on_gpu](std::mt19937_64& random) {
    const char* const type = on_gpu ? kTypes[1 + Below(random, 2)] : "f32";
    const int64_t rows = on_gpu ? 128 + Below(random, 600) : 600 + Below(random, 400);
    const int64_t terms = on_gpu ? 8 * (1 + Below(random, 90)) : 1 + Below(random, 400),
                  columns = on_gpu ? 8 * (1 + Below(random, 90)) : 450 + Below(random, 300);
    const std::string shape = fmt::format("{}[{}, {}]", type, rows, columns);
    const bool biased = Below(random, 2) == 0, adds = Below(random, 2) == 0,
               two = Below(random, 3) == 0;
    const char* const activations[] = {"none", "relu", "gelu", "silu", "gelu_tanh"};
    std::string params = fmt::format("%x: {0}[{1}, {2}], %w: {0}[{3}, {2}], %z: {4}", type, rows,
                                     terms, columns, shape);
    if (biased) params += fmt::format(", %b: {}[{}]", type, columns);
    std::string body = fmt::format("%a = linear(%x, %w, {}) {{activation = \"{}\"}}\n",
                                   biased ? "%b" : "_", activations[Below(random, 5)]);
    body += fmt::format("%y0 = {}(%a, %z)\n", adds ? "add" : "mul");
    std::string y = "%y0";
    if (Below(random, 2) == 0)
      body +=
          fmt::format("%half = full() {{value = 0.5, dtype = {}}}\n%y1 = mul(%y0, %half)\n", type),
          y = "%y1";
    if (two || Below(random, 2) == 0) body += fmt::format("%y2 = tanh({})\n", y), y = "%y2";
    return fmt::format("program @f({}) -> (y: {}{}) {{\n{}return {}{}\n}}", params, shape,
                       two ? fmt::format(", first: {}", shape) : "", body, y, two ? ", %y0" : "");
  });
}

}  // namespace
}  // namespace opwire::executor

// Gradients against central differences in f64, by the reference kernels, for every row that has one.
#include "ir/passes/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "ir/passes/backward.h"
#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/outcome.h"
#include "tests/system/seed.h"

namespace opwire {
namespace {

using Inputs = std::map<std::string, std::vector<double>>;

class GradientTest : public OutcomeTest {
 protected:
  // The results by name, of parameters of f64 (others keep their random bytes); what `inputs` lacks is drawn between low and high and noted there.
  std::map<std::string, std::vector<double>> Run(const Module& m, Inputs& inputs, double low, double high) {
    Restart();
    opwire::Client c = Hello();
    const auto fill = [&](const Param& p, std::string& bytes, std::mt19937_64&) {
      if (p.type.dtype != DType::kF64) return;
      std::vector<double>& values = inputs[p.name];
      if (values.empty()) {
        // Of a grid that meets neither 0, nor another whole number, nor the values of other parameters, where functions have kinks; each once.
        std::vector<double> grid;
        for (double v = low + 0.0037 + 0.0007 * static_cast<double>(inputs.size()); v < high; v += 0.01) grid.push_back(v);
        std::ranges::shuffle(grid, random_);
        values.assign(grid.begin(), grid.begin() + static_cast<ptrdiff_t>(bytes.size() / sizeof(double)));
      }
      std::memcpy(bytes.data(), values.data(), bytes.size());
    };
    const std::vector<std::string> out = Outcome(c, m, /*seed=*/7, fill);
    EXPECT_EQ(out[0], "OK") << Print(m);
    std::map<std::string, std::vector<double>> results;
    for (size_t i = 0; i < m.functions[0].results.size() && out[0] == "OK"; ++i) {
      std::vector<double>& values = results[m.functions[0].results[i].name];
      values.resize(out[i + 1].size() / sizeof(double));
      std::memcpy(values.data(), out[i + 1].data(), values.size() * sizeof(double));
    }
    return results;
  }

  // Gradients of the program's loss by each f64 parameter, before and after the passes.
  void Check(const std::string& text, double low = -2, double high = 2) {
    SCOPED_TRACE(text);
    ASSERT_OK_AND(const Module m, Parse(text, "test.opw"));
    std::vector<std::string> wrt;
    for (const Param& p : m.functions[0].params) {
      if (p.mode == ParamMode::kIn && p.type.dtype == DType::kF64 && p.name != "cotangent") wrt.push_back(p.name);
    }
    ASSERT_OK_AND(Module with, Gradient(m, wrt));
    Inputs inputs;
    const auto results = Run(with, inputs, low, high);
    for (const Node& node : m.functions[0].nodes) seen_.insert(node.op);
    for (const std::string& name : wrt) {
      const auto gradient = results.find("grad." + name);
      ASSERT_NE(gradient, results.end());
      ASSERT_EQ(gradient->second.size(), inputs[name].size());
      for (size_t i = 0; i < inputs[name].size(); ++i) {
        const double at = inputs[name][i];
        constexpr double kStep = 4e-6;
        const auto loss = [&](double steps) {
          inputs[name][i] = at + steps * kStep;
          return Run(m, inputs, low, high)["loss"].at(0);
        };
        // Of fourth order.
        const double expected = (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * kStep), scale = std::abs(loss(0));
        inputs[name][i] = at;
        ASSERT_NEAR(gradient->second[i], expected, 2e-8 * std::max({1.0, std::abs(expected), scale})) << "by " << name << "[" << i << "]\n" << Print(with);
      }
    }
    Module optimised = with;
    ASSERT_OK(RunPasses(optimised).status());
    const auto again = Run(optimised, inputs, low, high);
    for (const auto& [name, values] : results) {
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(again.at(name)[i], values[i], 1e-12 * std::max(1.0, std::abs(values[i]))) << name << "\n" << Print(optimised);
    }
  }
  // The same where the body makes `y` of this shape.
  void Of(const std::string& params, const std::string& shape, const std::string& body, double low = -2, double high = 2, const std::string& y = "y") {
    Check(fmt::format("program @f({}, %cotangent: f64[{}]) -> (loss: f64[]) {{\n{}\n%m = mul(%{}, %cotangent) %loss = sum(%m) return %loss }}", params, shape, body, y), low, high);
  }

  std::mt19937_64 random_{Seed()};
  std::set<std::string> seen_;
};

TEST_F(GradientTest, OpsWithABody) {
  OPWIRE_TRACE_SEED();
  for (const OpRow& row : Catalogue().rows()) {
    if (row.body.Empty() || !BodyGradients(row.name)) continue;
    const bool where = row.name == "where", positive = row.name == "log" || row.name == "sqrt" || row.name == "rsqrt" || row.name == "pow" || row.name == "log1p" || row.name == "div" ||
                                                       row.name == "reciprocal" || row.name == "fmod";
    const double low = positive ? 0.6 : -1.4, high = positive ? 2.8 : 1.4;
    // Of equal shapes, and broadcast.
    for (const char* other : {"3, 2", "2", "3, 1", ""}) {
      std::string params, operands;
      for (size_t i = where; i < row.operands.size(); ++i) {
        params += fmt::format("{}%{}: f64[{}]", params.empty() ? "" : ", ", row.operands[i].name, i == static_cast<size_t>(where) ? "3, 2" : other);
        operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", row.operands[i].name);
      }
      const std::string condition = where ? "%b = values() {value = [1.0, 0.0], dtype = bool}" : "";
      Of(params, "3, 2", fmt::format("{} %out = {}({}{})", condition, row.name, where ? "%b, " : "", operands), low, high, "out");
      if (HasFatalFailure()) return;
      if (row.operands.size() == 1) break;
    }
  }
}

TEST_F(GradientTest, EveryOtherRowThatHasOne) {
  OPWIRE_TRACE_SEED();
  Of("%x: f64[2, 3]", "3, 2", "%y = reshape(%x) {shape = [3, 2]}");
  Of("%x: f64[2, 1]", "4, 2, 3", "%y = expand(%x) {shape = [4, 2, 3]}");
  Of("%x: f64[2, 3, 4]", "4, 2, 3", "%y = permute(%x) {dims = [2, 0, -2]}");
  Of("%x: f64[2, 3]", "2, 6, 6", "%y = tile(%x) {repeats = [2, 3, 2]}");
  Of("%x: f64[3, 5]", "3, 2", "%s = full() {value = 1.0, dtype = i64} %y = slice(%x, %s) {dim = 1, length = 2, step = 2}");
  Of("%x: f64[5, 2]", "3, 2", "%s = full() {value = -3.0, dtype = i32} %y = slice(%x, %s) {length = 3}");
  Of("%a: f64[2, 3], %b: f64[2, 1], %d: f64[2, 2]", "2, 6", "%y = cat([%a, %b, %d]) {dim = -1}");
  Of("%a: f64[?n, 2], %b: f64[?k, 2]", "?n+?k, 2", "%y = cat([%a, %b])");
  Of("%a: f64[2], %b: f64[2], %d: f64[2]", "2", "%i = values() {value = [2, 0], dtype = i64} %y = choose(%i, [%a, %b, %d])");
  // Places: 0, 2, 1, 0, 2, 2.
  const std::string six = "%i6 = values() {value = [0, 2, 1, 0, 2, -1], dtype = i64}";
  Of("%x: f64[3, 3]", "2, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = gather(%x, %i)");
  Of("%x: f64[2, 4]", "2, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = gather(%x, %i) {dim = 1}");
  Of("%x: f64[3, 3], %s: f64[2, 3]", "3, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = scatter_add(%x, %i, %s)");
  Of("%x: f64[4, 3]", "2, 3, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = embedding(%x, %i)");
  Of("%x: f64[4, 3]", "6, 3", six + "%y = index_select(%x, %i6)");
  Of("%x: f64[2, 3, 4]", "2, 2, 3, 4", six + "%i = reshape(%i6) {shape = [2, 3]} %y = index_select(%x, %i) {dim = 1}");
  Of("%x: f64[3, 5]", "3, 5", "%y, %p = sort(%x) {descending = true}");
  Of("%x: f64[3, 5]", "2, 5", "%y, %p = topk(%x) {k = 2, dim = 0, largest = false}");

  Of("%x: f64[2, 3, 4]", "2, 4", "%y = sum(%x) {dims = [1]}");
  Of("%x: f64[2, 3, 4]", "1, 3, 1", "%y = mean(%x) {dims = [0, -1], keepdim = true}");
  Of("%x: f64[?n, 4]", "4", "%y = mean(%x) {dims = [0]}");
  Of("%x: f64[2, 3]", "", "%y = mean(%x)");
  Of("%x: f64[3, 4]", "3", "%y = amax(%x) {dims = [1]}");
  Of("%x: f64[3, 4]", "1, 4", "%y = amin(%x) {dims = [0], keepdim = true}");
  Of("%x: f64[3, 4]", "3, 4", "%y = cumsum(%x) {dim = -1}");

  for (const char* x : {"f64[2, 4, 3]", "f64[4, 3]"}) {
    Of(fmt::format("%x: {}, %w: f64[3, 5]", x), x[5] == ',' ? "2, 4, 5" : "4, 5", "%y = matmul(%x, %w)");
  }
  Of("%x: f64[3, 4], %w: f64[3, 5]", "4, 5", "%y = matmul(%x, %w) {transpose_x = true}");
  Of("%x: f64[4, 3], %w: f64[5, 3]", "4, 5", "%y = matmul(%x, %w) {transpose_y = true}");
  Of("%x: f64[3, 4], %w: f64[2, 5, 3]", "2, 4, 5", "%y = matmul(%x, %w) {transpose_x = true, transpose_y = true}");
  for (const char* activation : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
    Of("%x: f64[2, 3, 4], %w: f64[5, 4], %b: f64[5]", "2, 3, 5", fmt::format("%y = linear(%x, %w, %b) {{activation = \"{}\"}}", activation));
    Of("%x: f64[3, 4], %n: f64[4], %w: f64[5, 4], %b: f64[5]", "3, 5", fmt::format("%y = rms_norm_linear(%x, %n, %w, %b) {{activation = \"{}\"}}", activation));
  }
  Of("%x: f64[4], %w: f64[5, 4]", "5", "%y = linear(%x, %w)");
  Of("%x: f64[3, 4], %w: f64[5, 4]", "3, 5", "%y = rms_norm_linear(%x, _, %w)");
  Of("%x: f64[2, 4, 5, 4], %w: f64[6, 2, 3, 2], %b: f64[6]", "2, 6, 3, 3", "%y = convolution(%x, %w, %b) {padding = [1, 0], stride = [2, 1], groups = 2}");
  Of("%x: f64[1, 2, 4], %w: f64[2, 3, 3]", "1, 3, 9", "%y = convolution(%x, %w) {transposed = true, stride = [2]}");
  Of("%q: f64[4, 3, 2], %k: f64[2, 5, 2], %v: f64[2, 5, 3]", "4, 3, 3", "%y, %l = scaled_dot_product_attention(%q, %k, %v) {causal = true}");
  Of("%x: f64[2, 3, 4]", "2, 3, 4", "%y = rotary_embedding(%x)");
  Of("%x: f64[2, 3, 6]", "2, 3, 6", "%y = rotary_embedding(%x) {dim = 4, interleaved = true, inverse = true, scale = 0.5}");

  Of("%x: f64[3, 4]", "3, 4", "%y = softmax(%x)");
  Of("%x: f64[3, 4]", "3, 4", "%y = log_softmax(%x) {dim = 0}");
  Of("%x: f64[3, 4], %w: f64[4], %b: f64[4]", "3, 4", "%y = layer_norm(%x, %w, %b) {eps = 0.01}");
  Of("%x: f64[2, 3, 4], %w: f64[3, 4]", "2, 3, 4", "%y = layer_norm(%x, %w) {dims = 2}");
  Of("%x: f64[3, 4]", "3, 4", "%y = layer_norm(%x)");
  Of("%x: f64[3, 4], %w: f64[4]", "3, 4", "%y = rms_norm(%x, %w)");
  Of("%x: f64[3, 4], %r: f64[3, 4], %w: f64[4], %b: f64[4]", "3, 4", "%n, %s = add_layer_norm(%x, %r, %w, %b) %y = mul(%n, %s)");
  Of("%x: f64[3, 4], %r: f64[3, 4], %w: f64[4]", "3, 4", "%n, %s = add_rms_norm(%x, %r, %w) %y = add(%n, %s)");
  Of("%x: f64[3, 4], %r: f64[3, 4]", "3, 4", "%y, %s = add_rms_norm(%x, %r)");
  Of("%x: f64[3, 4], %r: f64[3, 4]", "3, 4", "%n, %y = add_rms_norm(%x, %r)");
  for (const char* reduction : {"mean", "sum", "none"}) {
    const std::string shape = reduction == std::string("none") ? "3" : "";
    Of("%x: f64[3, 4]", shape, fmt::format("%t = values() {{value = [2, -100, 0], dtype = i64}} %y = cross_entropy(%x, %t) {{reduction = \"{}\"}}", reduction));
    Of("%x: f64[3, 2], %w: f64[4, 2]", shape,
       fmt::format("%t = values() {{value = [2, 1, 0], dtype = i64}} %y, %l = linear_cross_entropy(%x, %w, %t) {{reduction = \"{}\"}}", reduction));
  }
  Of("%x: f64[40]", "40", "%p = full() {value = 0.25} %k = values() {value = [3, 4], dtype = u64} %y = dropout(%x, %p, %k)");
  Of("%x: f64[4]", "4", "%a = cast(%x) {dtype = f64} %y = mul(%a, %x)");

  // Each row of the table was met.
  for (const char* op : {"reshape", "expand", "permute", "tile", "slice", "cat", "choose", "gather", "scatter_add", "embedding", "index_select", "sort", "topk", "sum", "mean", "amax",
                         "amin", "cumsum", "matmul", "linear", "rms_norm_linear", "convolution", "scaled_dot_product_attention", "rotary_embedding", "softmax", "log_softmax",
                         "layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "cross_entropy", "linear_cross_entropy", "dropout", "cast"}) {
    EXPECT_TRUE(seen_.contains(op)) << op;
  }
}

// Several uses of one value, chains, and values that the loss does not depend on.
TEST_F(GradientTest, WholePrograms) {
  OPWIRE_TRACE_SEED();
  Check(R"(program @mlp(%x: f64[?b, 6], %w1: f64[5, 6], %b1: f64[5], %w2: f64[4, 5], %unused: f64[2]) -> (loss: f64[], p: f64[?b, 4]) {
             %h = linear(%x, %w1, %b1) {activation = "gelu"}
             %s = linear(%h, %w2)
             %p = softmax(%s)
             %l = log(%p)
             %e = mul(%p, %l)
             %r = sum(%e) {dims = [1]}
             %m = mean(%r)
             %q = mul(%w2, %w2)
             %d = sum(%q)
             %loss = add(%m, %d)
             return %loss, %p })");
  Check(R"(program @block(%x: f64[2, 5, 8], %n: f64[8], %qkv: f64[24, 8], %o: f64[8, 8], %m: f64[8]) -> (loss: f64[]) {
             %a = rms_norm_linear(%x, %n, %qkv)
             %z = full() {value = 0.0, dtype = i64}
             %e = full() {value = 8.0, dtype = i64}
             %s = full() {value = 16.0, dtype = i64}
             %q = slice(%a, %z) {dim = 2, length = 8}
             %k = slice(%a, %e) {dim = 2, length = 8}
             %v = slice(%a, %s) {dim = 2, length = 8}
             %q4 = reshape(%q) {shape = [2, 5, 2, 4]}
             %k4 = reshape(%k) {shape = [2, 5, 2, 4]}
             %v4 = reshape(%v) {shape = [2, 5, 2, 4]}
             %qh = permute(%q4) {dims = [0, 2, 1, 3]}
             %kh = permute(%k4) {dims = [0, 2, 1, 3]}
             %vh = permute(%v4) {dims = [0, 2, 1, 3]}
             %qr = rotary_embedding(%qh)
             %kr = rotary_embedding(%kh)
             %t, %lse = scaled_dot_product_attention(%qr, %kr, %vh) {causal = true}
             %tp = permute(%t) {dims = [0, 2, 1, 3]}
             %tr = reshape(%tp) {shape = [2, 5, 8]}
             %p = linear(%tr, %o)
             %y, %sum = add_rms_norm(%p, %x, %m)
             %sq = mul(%y, %sum)
             %loss = mean(%sq)
             return %loss })", -1, 1);
}

TEST_F(GradientTest, OtherTypesKeepTheirs) {
  ASSERT_OK_AND(const Module m, Parse(R"(program @f(%x: bf16[3, 4], %w: f32[4]) -> (loss: f32[]) {
                                           %a = cast(%x) {dtype = f32}
                                           %b = mul(%a, %w)
                                           %c = cast(%b) {dtype = bf16}
                                           %d = mean(%c) {dims = [0]}
                                           %e = cast(%d) {dtype = f32}
                                           %loss = sum(%e)
                                           return %loss })", "test.opw"));
  ASSERT_OK_AND(const Module with, Gradient(m, std::vector<std::string>{"x", "w"}));
  const ValueTypes values(with.functions[0]);
  const auto type = [&](size_t result) { return ToString(*values.types[static_cast<size_t>(with.functions[0].results[result].value)], with.dims); };
  EXPECT_EQ(type(1), "bf16[3, 4]");
  EXPECT_EQ(type(2), "f32[4]");
}

TEST(Gradient, Errors) {
  const auto error = [](const std::string& text, const std::vector<std::string>& wrt, const std::string& loss = "") {
    auto m = Parse(text, "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    return Gradient(*std::move(m), wrt, {.loss = loss}).status().ToString();
  };
  const std::string two = "program @f(%x: f32[2], %i: i64[2], inout %w: f32[2]) -> (a: f32[], b: f32[], v: f32[2], w: f32[2]) { %0 = sum(%x) %1 = mean(%x) %2 = add(%w, %x) return %0, %1, %x, %2 }";
  EXPECT_EQ(error(two, {"x"}), "INVALID_ARGUMENT: gradient: expected one loss, 2 could be it: a, b");
  EXPECT_EQ(error(two, {"x"}, "v"), "INVALID_ARGUMENT: gradient: expected a loss that is a float of rank 0, v is none");
  EXPECT_EQ(error(two, {"x"}, "bb"), "INVALID_ARGUMENT: gradient: the program has no result bb, did you mean b?");
  EXPECT_EQ(error(two, {"y"}, "a"), "INVALID_ARGUMENT: gradient: the program has no parameter y");
  EXPECT_EQ(error(two, {"i"}, "a"), "INVALID_ARGUMENT: gradient: expected a parameter of floats, i is of i64");
  EXPECT_EQ(error(two, {"w"}, "a"), "INVALID_ARGUMENT: gradient: expected a parameter that is only read, w is inout");
  EXPECT_EQ(error(two, {"x", "x"}, "a"), "INVALID_ARGUMENT: gradient: x is named twice");
  EXPECT_EQ(error("program @f(%x: f32[2]) -> (y: f32[2]) { return %x }", {"x"}), "INVALID_ARGUMENT: gradient: expected a result that is a float of rank 0, to be the loss");
  EXPECT_EQ(error(R"(program @f(%x: f32[2]) -> (y: f32[]) { %0 = prod(%x) loc("model.py:3") return %0 })", {"x"}),
            "UNIMPLEMENTED: gradient: there is none of prod (node %0 of \"f\", model.py:3)");
}

}  // namespace
}  // namespace opwire

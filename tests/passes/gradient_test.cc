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

// ---- Loops ---------------------------------------------------------------------------------------------------------------------

// A program that takes a step again and again, as a loop or written out.
struct Stepped {
  struct Carried {
    std::string name, type, begin, next;  // `next`: as in `step`
    std::string mode = "";
  };
  std::string params;                                       // of the program
  std::string before;                                       // nodes
  std::vector<Carried> carried;
  std::vector<std::pair<std::string, std::string>> inputs;  // of the step, by name and type, from values of those names
  std::string step;                                         // nodes: $name is a carried value, an input, or the trip; # ends the names of other values
  std::string after;                                        // nodes, the last of them %loss: $name is a carried value
  std::string functions = "";                               // that the step calls

  using Names = std::map<std::string, std::string>;
  static std::string Written(const std::string& text, const Names& names, const std::string& suffix) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '#') {
        out += suffix;
      } else if (text[i] == '$') {
        size_t end = i + 1;
        while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
        out += "%" + names.at(text.substr(i + 1, end - i - 1));
        i = end - 1;
      } else {
        out += text[i];
      }
    }
    return out;
  }
  std::string WrittenOut(int trips) const {
    std::string out = fmt::format("program @f({}) -> (loss: f64[]) {{\n{}\n", params, before);
    Names names;
    for (const auto& [name, type] : inputs) names[name] = name;
    for (const Carried& c : carried) names[c.name] = c.begin;
    for (int t = 0; t < trips; ++t) {
      names["trip"] = fmt::format("trip_{}", t);
      out += fmt::format("%trip_{} = full() {{value = {}.0, dtype = i64}}\n{}\n", t, t, Written(step, names, fmt::format("_{}", t)));
      Names next = names;
      for (const Carried& c : carried) next[c.name] = Written(c.next, names, fmt::format("_{}", t)).substr(1);
      names = next;
    }
    return out + Written(after, names, "") + "\nreturn %loss }\n" + functions;
  }
  std::string AsLoop(int trips) const {
    std::string from, to, takes = "%trip: i64[]", given, types, next;
    Names names = {{"trip", "trip"}}, ends;
    const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
    for (const Carried& c : carried) {
      names[c.name] = c.name;
      ends[c.name] = "end_" + c.name;
      add(from, "%" + c.begin);
      add(to, "%end_" + c.name);
      add(takes, fmt::format("{}%{}: {}", c.mode, c.name, c.type));
      add(types, c.name + ": " + c.type);
    }
    for (const auto& [name, type] : inputs) {
      names[name] = name;
      add(given, "%" + name);
      add(takes, fmt::format("%{}: {}", name, type));
    }
    for (const Carried& c : carried) add(next, Written(c.next, names, ""));
    return fmt::format("program @f({}) -> (loss: f64[]) {{\n{}\n%trips = full() {{value = {}.0, dtype = i64}}\n{} = repeat(%trips, [{}], [{}]) calls(@step)\n{}\nreturn %loss }}\n"
                       "function @step({}) -> ({}) {{\n{}\nreturn {} }}\n{}",
                       params, before, trips, to, from, given, Written(after, ends, ""), takes, types, Written(step, names, ""), next, functions);
  }
};

class LoopGradientTest : public GradientTest {
 protected:
  // The loop's gradients are central differences, and those of the steps written out.
  void CheckLoop(const Stepped& program, const std::vector<int>& all_trips = {0, 1, 5}) {
    for (const int trips : all_trips) {
      Check(program.AsLoop(trips), 0.3, 1.2);
      if (!HasFatalFailure()) CheckWrittenOut(program, trips, 1e-13);
      if (HasFatalFailure()) return;
    }
  }
  void CheckWrittenOut(const Stepped& program, int trips, double tolerance) {
    const std::string loop = program.AsLoop(trips), out = program.WrittenOut(trips);
    SCOPED_TRACE(loop);
    ASSERT_OK_AND(Module looped, Parse(loop, "loop.opw"));
    ASSERT_OK_AND(Module written, Parse(out, "out.opw"));
    std::vector<std::string> wrt;
    for (const Param& p : looped.functions[0].params) {
      if (p.type.dtype == DType::kF64) wrt.push_back(p.name);
    }
    ASSERT_OK_AND(looped, Gradient(looped, wrt));
    ASSERT_OK_AND(written, Gradient(written, wrt));
    Inputs inputs;
    const auto got = Run(looped, inputs, 0.3, 1.2), expected = Run(written, inputs, 0.3, 1.2);
    ASSERT_EQ(got.size(), wrt.size() + 1);
    for (const auto& [name, values] : expected) {
      ASSERT_EQ(got.at(name).size(), values.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(got.at(name)[i], values[i], tolerance * std::max(1.0, std::abs(values[i]))) << name << "\n" << Print(looped);
    }
  }
  static Module WithGradients(const std::string& text, const std::vector<std::string>& wrt) {
    auto m = Parse(text, "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    auto with = Gradient(*std::move(m), wrt);
    EXPECT_TRUE(with.ok()) << with.status();
    return *std::move(with);
  }
};

// Inputs that are read in each trip, integers and bools beside the floats, a sum over the trips, and a weight that is also read elsewhere.
TEST_F(LoopGradientTest, OfARecurrence) {
  OPWIRE_TRACE_SEED();
  Stepped program{.params = "%h: f64[3], %w: f64[3], %xs: f64[5, 3]",
                  .before = "%two = full() {value = 2.0, dtype = i64} %zero = zeros() {dtype = f64} %yes = full() {value = 1.0, dtype = bool}",
                  .carried = {{"c", "i64[]", "two", "%c2#"}, {"h", "f64[3]", "h", "%y#"}, {"g", "f64[]", "zero", "%g2#"}, {"b", "bool[]", "yes", "%b2#"}},
                  .inputs = {{"w", "f64[3]"}, {"xs", "f64[5, 3]"}},
                  .step = R"(%s# = slice($xs, $trip) {length = 1}
                             %x# = reshape(%s#) {shape = [3]}
                             %m# = mul($h, $w)
                             %k# = cumsum(%m#) {dim = 0}
                             %a# = add(%k#, %x#)
                             %t# = tanh(%a#)
                             %f# = cast($c) {dtype = f64}
                             %u# = div(%t#, %f#)
                             %y# = where($b, %u#, %t#)
                             %q# = mul(%y#, %y#)
                             %d# = sum(%q#)
                             %g2# = add($g, %d#)
                             %c2# = add($c, $trip)
                             %b2# = bitwise_not($b))",
                  .after = "%ws = mul(%w, $h) %sum = sum(%ws) %loss = add(%sum, $g)"};
  CheckLoop(program);
  program.carried[1].mode = "inout ";
  CheckLoop(program, {2});
}

// Values that change places, one that a constant takes the place of, and one that no node reads.
TEST_F(LoopGradientTest, OfValuesThatAreHandedOn) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%a: f64[2], %b: f64[2], %p: f64[2], %q: f64[2], %i: f64[2]",
             .before = "%r = full() {shape = [2], value = 0.25, dtype = f64} %five = full() {value = 5.0, dtype = i64}",
             .carried = {{"a", "f64[2]", "a", "$b"}, {"b", "f64[2]", "b", "%s#"}, {"p", "f64[2]", "p", "$r"}, {"q", "f64[2]", "q", "$i"}, {"r", "f64[2]", "r", "$r"},
                         {"n", "i64[]", "five", "$trip"}},
             .inputs = {{"i", "f64[2]"}},
             .step = "%m# = mul($a, $i) %s# = sin(%m#)",
             .after = "%x = add($a, $b) %y = mul($p, $q) %z = mul(%y, $r) %u = add(%x, %z) %loss = sum(%u)"});
}

TEST_F(LoopGradientTest, OfLoopsInLoops) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%h: f64[2], %w: f64[2], %v: f64[2]",
             .before = "%one = full() {value = 1.0, dtype = i64}",
             .carried = {{"h", "f64[2]", "h", "%h2#"}, {"c", "i64[]", "one", "%c2#"}},
             .inputs = {{"v", "f64[2]"}, {"w", "f64[2]"}},
             .step = R"(%n# = full() {value = 3.0, dtype = i64}
                        %z# = mul($h, $v)
                        %h2#, %c2# = repeat(%n#, [%z#, $c], [$w, $h, $trip]) calls(@inner))",
             .after = "%m = mul($h, %v) %loss = sum(%m)",
             .functions = R"(function @inner(%trip: i64[], %z: f64[2], %c: i64[], %w: f64[2], %h: f64[2], %outer: i64[]) -> (z: f64[2], c: i64[]) {
                               %0 = mul(%z, %w)
                               %1 = add(%0, %h)
                               %2 = add(%c, %outer)
                               %3 = cast(%2) {dtype = f64}
                               %4 = div(%1, %3)
                               %n = full() {value = 2.0, dtype = i64}
                               %5 = repeat(%n, [%4], []) calls(@innermost)
                               %6 = add(%c, %trip)
                               return %5, %6 }
                             function @innermost(%trip: i64[], %z: f64[2]) -> (z: f64[2]) {
                               %0 = sin(%z)
                               return %0 })"},
            {1, 3});
}

// The step's extents are its callers', and what lies between the loops is not called any more.
TEST_F(LoopGradientTest, OfExtentsThatOnlyCallersBind) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%x: f64[?n, 2], %w: f64[2]",
             .before = "%twice = cat([%x, %x])",
             .carried = {{"h", "f64[?n+?n, 2]", "twice", "%y#"}},
             .inputs = {{"w", "f64[2]"}},
             .step = "%m# = mul($h, $w) %y# = tanh(%m#)",
             .after = "%loss = sum($h)"},
            {0, 3});
}

// Of what the loop carries only a part leads to the loss; the rest may come from ops that have no gradient.
TEST_F(LoopGradientTest, PassByWhatTheLossDoesNotDependOn) {
  OPWIRE_TRACE_SEED();
  CheckLoop({.params = "%h: f64[2], %w: f64[2], %i: f64[2]",
             .before = "%zero = zeros() {dtype = f64}",
             .carried = {{"h", "f64[2]", "h", "%y#"}, {"s", "f64[]", "zero", "%t#"}},
             .inputs = {{"w", "f64[2]"}, {"i", "f64[2]"}},
             .step = "%m# = mul($h, $w) %y# = tanh(%m#) %e# = mul(%y#, $i) %p# = prod(%e#) %t# = add($s, %p#)",
             .after = "%loss = sum($h)"},
            {3});
}

// Steps of random nodes, whose results are carried by random values.
TEST_F(LoopGradientTest, OfRandomSteps) {
  OPWIRE_TRACE_SEED();
  const auto below = [&](size_t n) { return static_cast<size_t>(random_() % n); };
  for (int i = 0; i < 100; ++i) {
    Stepped program{.before = "%one = full() {shape = [2], value = 1.0, dtype = f64}"};
    std::vector<std::string> values;
    const auto param = [&] {
      const std::string name = fmt::format("p{}", values.size());
      program.params += fmt::format("{}%{}: f64[2]", program.params.empty() ? "" : ", ", name);
      values.push_back("$" + name);
      return name;
    };
    for (size_t k = below(3); k > 0; --k) program.inputs.emplace_back(param(), "f64[2]");
    const size_t carried = 1 + below(4);
    for (size_t k = 0; k < carried; ++k) {
      const std::string name = param();
      program.carried.push_back({name, "f64[2]", below(4) == 0 ? "one" : name, ""});
    }
    for (size_t k = below(8); k > 0; --k) {
      const std::string &x = values[below(values.size())], &y = values[below(values.size())], name = fmt::format("%v{}#", k);
      program.step += below(2) == 0 ? fmt::format("{} = {}({})\n", name, below(2) == 0 ? "cos" : "tanh", x) : fmt::format("{} = {}({}, {})\n", name, below(2) == 0 ? "mul" : "sub", x, y);
      values.push_back(name);
    }
    program.after = "%s0 = full() {value = 0.0, dtype = f64}\n";
    for (size_t k = 0; k < carried; ++k) {
      Stepped::Carried& c = program.carried[k];
      c.next = values[below(values.size())];
      if (below(3) > 0) {
        program.step += fmt::format("%e{}# = sin({})\n", k, c.next);
        c.next = fmt::format("%e{}#", k);
      }
      const std::string summed = below(2) == 0 ? "%one" : fmt::format("%w{}", k);
      program.after += fmt::format("%w{} = cos(${}) %t{} = sum({}) %s{} = add(%s{}, %t{})\n", k, c.name, k, summed, k + 1, k, k);
    }
    program.after += fmt::format("%loss = sum(%s{})", carried);
    CheckWrittenOut(program, static_cast<int>(below(5)), 1e-10);
    if (HasFatalFailure()) return;
  }
}

// Gradients are added up in their own type.
TEST_F(LoopGradientTest, OtherTypesKeepTheirs) {
  const Module with = WithGradients(R"(program @f(%x: bf16[4], %w: f32[4]) -> (loss: f32[]) {
                                         %k = full() {value = 3.0, dtype = i64}
                                         %y = repeat(%k, [%x], [%w]) calls(@step)
                                         %f = cast(%y) {dtype = f32}
                                         %loss = sum(%f)
                                         return %loss }
                                       function @step(%trip: i64[], %x: bf16[4], %w: f32[4]) -> (x: bf16[4]) {
                                         %0 = cast(%x) {dtype = f32}
                                         %1 = mul(%0, %w)
                                         %2 = cast(%1) {dtype = bf16}
                                         return %2 })",
                                    {"x", "w"});
  const ValueTypes values(with.functions[0]);
  const auto type = [&](size_t result) { return ToString(*values.types[static_cast<size_t>(with.functions[0].results[result].value)], with.dims); };
  EXPECT_EQ(type(1), "bf16[4]");
  EXPECT_EQ(type(2), "f32[4]");
}

// What is computed again is not sent again, wherever it is emitted.
TEST_F(LoopGradientTest, EmitOnce) {
  const std::string text = R"(program @f(%x: f64[2]) -> (loss: f64[]) {
                                %n = full() {value = 3.0, dtype = i64}
                                %y = repeat(%n, [%x], []) calls(@step)
                                %loss = sum(%y)
                                return %loss }
                              function @step(%trip: i64[], %x: f64[2]) -> (x: f64[2]) {
                                emit(%trip) {name = "trip"}
                                %n = full() {value = 2.0, dtype = i64}
                                %0 = gt(%trip, %n)
                                %k = if(%0, [%trip]) calls(@tell, @pass) -> (i64[])
                                %s = cast(%k) {dtype = f64}
                                %1 = repeat(%n, [%x], [%s]) calls(@inner)
                                return %1 }
                              function @inner(%trip: i64[], %x: f64[2], %s: f64[]) -> (x: f64[2]) {
                                %0 = mul(%x, %s)
                                emit(%0) {name = "x"}
                                %1 = sin(%0)
                                return %1 }
                              function @tell(%t: i64[]) -> (t: i64[]) { emit(%t) {name = "told"} %0 = add(%t, %t) return %0 }
                              function @pass(%t: i64[]) -> (t: i64[]) { emit(%t) {name = "passed"} %0 = add(%t, %t) return %0 })";
  const auto parts = [&](const Module& m) {
    Inputs inputs;
    Run(m, inputs, 0.3, 1.2);
    return std::ranges::count_if(shell_.sent, [](const FakeShell::Message& sent) {
      AlignedBytes memory;
      return !DecodeReply(AsBytes(sent.head), memory).value()->last();
    });
  };
  ASSERT_OK_AND(const Module before, Parse(text, "test.opw"));
  EXPECT_EQ(parts(before), 3 * 4);
  EXPECT_EQ(parts(WithGradients(text, {"x"})), 3 * 4);
}

// Of what is kept only the row of the trip is written, and read.
TEST(Gradient, LoopsKeepInPlace) {
  ASSERT_OK_AND(Module m, Parse(R"(program @f(%x: f32[8]) -> (loss: f32[]) {
                                     %n = full() {value = 7.0, dtype = i64}
                                     %y = repeat(%n, [%x], []) calls(@step)
                                     %loss = sum(%y)
                                     return %loss }
                                   function @step(%trip: i64[], %x: f32[8]) -> (x: f32[8]) {
                                     %0 = sin(%x)
                                     return %0 })",
                                "test.opw"));
  ASSERT_OK_AND(m, Gradient(m, std::vector<std::string>{"x"}));
  ASSERT_OK(RunPasses(m).status());
  EXPECT_EQ(WithoutVariants(StepsOf(Print(m))),
            (std::vector<std::string>{"full", "zeros", "copy", "control", "control", "reshape", "kv_append", "sin", "control", "sum", "full", "copy", "control", "control", "full", "sub",
                                      "slice", "cos", "mul", "control"}))
      << "the copies are of %x and of the gradient that the way back begins with";
}

TEST(Gradient, ErrorsOfLoops) {
  // Of a step, with the loop and its number of trips.
  const auto error = [](const std::string& step, const std::string& times = "%n = full() {value = 3.0, dtype = i64}", const std::string& functions = "") {
    auto m = Parse(fmt::format("program @f(%x: f32[2], %steps: i64[]) -> (loss: f32[]) {{ {} %y = repeat(%n, [%x], []) calls(@step) loc(\"model.py:3\") %loss = sum(%y) return %loss }}\n"
                               "function @step(%trip: i64[], %x: f32[2]) -> (x: f32[2]) {{ {} }}\n{}",
                               times, step, functions),
                   "test.opw");
    EXPECT_TRUE(m.ok()) << m.status();
    return Gradient(*std::move(m), std::vector<std::string>{"x"}).status().ToString();
  };
  EXPECT_EQ(error("%0 = sin(%x) return %0", "%n = copy(%steps)"),
            "UNIMPLEMENTED: gradient: expected a constant number of trips, got one that only a run knows, for repeat (node %1 of \"f\", model.py:3)");
  EXPECT_EQ(error("%a = sin(%x) emit(%a) {name = \"a\"} %b = prod(%a) loc(\"model.py:7\") %c = add(%a, %b) return %c"),
            "UNIMPLEMENTED: gradient: there is none of prod (node %1 of \"step\", model.py:7)");
  const std::string half = "function @half(%trip: i64[], %x: f32[2]) -> (x: f32[2]) { %0 = sin(%x) return %0 }";
  EXPECT_EQ(error("%0 = repeat(%trip, [%x], []) calls(@half) return %0", "%n = full() {value = 3.0, dtype = i64}", half),
            "UNIMPLEMENTED: gradient: expected a constant number of trips, got one that only a run knows, for repeat (node %0 of \"step\")");
  EXPECT_EQ(error("%n = full() {value = 2.0, dtype = i64} emit(%n) {name = \"n\"} %0 = repeat(%n, [%x], []) calls(@half) return %0", "%n = full() {value = 3.0, dtype = i64}",
                  "function @half(%trip: i64[], %x: f32[2]) -> (x: f32[2]) { emit(%x) {name = \"x\"} %0 = prod(%x) %1 = mul(%x, %0) return %1 }"),
            "UNIMPLEMENTED: gradient: there is none of prod (node %0 of \"half\")");
  EXPECT_EQ(error("%c = full() {value = 1.0, dtype = bool} %0 = if(%c, [%x]) calls(@then, @then) -> (f32[2]) return %0", "%n = full() {value = 3.0, dtype = i64}",
                  "function @then(%x: f32[2]) -> (x: f32[2]) { %0 = sin(%x) return %0 }"),
            "UNIMPLEMENTED: gradient: there is none of if (node %1 of \"step\")");

  ASSERT_OK_AND(const Module encoded, Parse(R"(program @f(%x: f32[32], %q: i8:q8_0[32]) -> (loss: f32[]) {
                                                 %n = full() {value = 3.0, dtype = i64}
                                                 %y, %r = repeat(%n, [%x, %q], []) calls(@step)
                                                 %loss = sum(%y)
                                                 return %loss }
                                               function @step(%trip: i64[], %x: f32[32], %q: i8:q8_0[32]) -> (x: f32[32], q: i8:q8_0[32]) {
                                                 %c = full() {value = 1.0, dtype = bool}
                                                 %0 = if(%c, [%x, %q]) calls(@one, @one) -> (f32[32])
                                                 %1 = mul(%x, %0)
                                                 return %1, %q }
                                               function @one(%x: f32[32], %q: i8:q8_0[32]) -> (x: f32[32]) { return %x })",
                                            "test.opw"));
  EXPECT_EQ(Gradient(encoded, std::vector<std::string>{"x"}).status().ToString(),
            "UNIMPLEMENTED: gradient: expected dense tensors among what is carried, got i8:q8_0[32] for repeat (node %1 of \"f\")");

  // The way back reads inputs again.
  ASSERT_OK_AND(const Module replaced, Parse(R"(program @f(%x: f32[2], inout %w: f32[2]) -> (loss: f32[], w: f32[2]) {
                                                  %n = full() {value = 3.0, dtype = i64}
                                                  %y = repeat(%n, [%x], [%w]) calls(@step)
                                                  %loss = sum(%y)
                                                  %u = neg(%w)
                                                  return %loss, %u }
                                                function @step(%trip: i64[], %x: f32[2], %w: f32[2]) -> (x: f32[2]) { %0 = mul(%x, %w) return %0 })",
                                             "test.opw"));
  EXPECT_EQ(Gradient(replaced, std::vector<std::string>{"x"}).status().code(), absl::StatusCode::kInvalidArgument);
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

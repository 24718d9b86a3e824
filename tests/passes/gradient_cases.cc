// Programs whose gradients are compared.
#include "tests/passes/gradient_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "ir/passes/backward.h"

namespace opwire {
namespace {

// Returns a case whose body computes `y` of this shape.
GradientCase Of(const std::string& params, const std::string& shape, const std::string& body,
                double low = -2, double high = 2) {
  return {fmt::format("program @f({}, %cotangent: f64[{}]) -> (loss: f64[]) {{\n{}\n%m = mul(%y, "
                      "%cotangent) %loss = sum(%m) return %loss }}",
                      params, shape, body),
          low, high};
}

// Returns the range in which the op has a gradient.
std::pair<double, double> DomainOf(std::string_view op) {
  static constexpr std::string_view kPositive[] = {"log", "log1p", "log2", "log10",      "sqrt",
                                                   "pow", "div",   "fmod", "reciprocal", "rsqrt"},
                                    kUnit[] = {"asin", "acos", "atanh"};
  if (op == "acosh") return {1.2, 2.8};
  if (std::ranges::find(kPositive, op) != std::end(kPositive)) return {0.6, 2.8};
  if (std::ranges::find(kUnit, op) != std::end(kUnit)) return {-0.9, 0.9};
  return {-1.4, 1.4};
}

}  // namespace

std::vector<GradientCase> BodyCases() {
  std::vector<GradientCase> out;
  for (const OpDef& row : Catalogue().rows()) {
    if (!BodyGradients(row.name)) continue;
    const bool where = row.name == "where";
    const auto [low, high] = DomainOf(row.name);
    for (const char* other : {"3, 2", "2", "3, 1", ""}) {
      std::string params, operands;
      for (size_t i = where; i < row.operands.size(); ++i) {
        const std::string name = "in_" + row.operands[i].name;
        params += fmt::format("{}%{}: f64[{}]", params.empty() ? "" : ", ", name,
                              i == static_cast<size_t>(where) ? "3, 2" : other);
        operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", name);
      }
      const std::string condition = where ? "%b = values() {value = [1.0, 0.0], dtype = bool}" : "";
      out.push_back(
          Of(params, "3, 2",
             fmt::format("{} %y = {}({}{})", condition, row.name, where ? "%b, " : "", operands),
             low, high));
      if (row.operands.size() == 1) break;
    }
  }
  return out;
}

std::vector<GradientCase> RowCases() {
  std::vector<GradientCase> out;
  const auto of = [&](const std::string& params, const std::string& shape,
                      const std::string& body) { out.push_back(Of(params, shape, body)); };
  of("%x: f64[2, 3]", "3, 2", "%y = reshape(%x) {shape = [3, 2]}");
  of("%x: f64[2, 3]", "2, 3", "%e = exp(%x) %y = recompute(%e)");
  of("%x: f64[2, 1]", "4, 2, 3", "%y = expand(%x) {shape = [4, 2, 3]}");
  of("%x: f64[2, 3, 4]", "4, 2, 3", "%y = permute(%x) {dims = [2, 0, -2]}");
  of("%x: f64[2, 3]", "2, 6, 6", "%y = tile(%x) {repeats = [2, 3, 2]}");
  of("%x: f64[3, 5]", "3, 2",
     "%s = full() {value = 1.0, dtype = i64} %y = slice(%x, %s) {dim = 1, length = 2, step = 2}");
  of("%x: f64[5, 2]", "3, 2",
     "%s = full() {value = -3.0, dtype = i32} %y = slice(%x, %s) {length = 3}");
  of("%x: f64[4, 5], %v: f64[2, 2]", "4, 5",
     "%s = values() {value = [1.0, -4.0], dtype = i64} %y = slice_update(%x, %v, %s) {steps = [2, "
     "3]}");
  of("%a: f64[2, 3], %b: f64[2, 1], %d: f64[2, 2]", "2, 6", "%y = cat([%a, %b, %d]) {dim = -1}");
  of("%a: f64[?n, 2], %b: f64[?k, 2]", "?n+?k, 2", "%y = cat([%a, %b])");
  of("%a: f64[2], %b: f64[2], %d: f64[2]", "2",
     "%i = values() {value = [-1, 0], dtype = i64} %y = choose(%i, [%a, %b, %d])");
  // Positions: 0, 2, 1, 0, 2, 2.
  const std::string six = "%i6 = values() {value = [0, 2, 1, 0, 2, -1], dtype = i64}";
  of("%x: f64[3, 3]", "2, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = gather(%x, %i)");
  of("%x: f64[2, 4]", "2, 3",
     six + "%i = reshape(%i6) {shape = [2, 3]} %y = gather(%x, %i) {dim = 1}");
  of("%x: f64[3, 3], %s: f64[2, 3]", "3, 3",
     six + "%i = reshape(%i6) {shape = [2, 3]} %y = scatter_add(%x, %i, %s)");
  of("%x: f64[3, 2], %s: f64[6, 2]", "3, 2",
     six + "%y = index_put(%x, %s, [%i6])");  // several for one position
  of("%x: f64[2, 3, 4], %s: f64[2, 2]", "2, 3, 4",
     "%i = values() {value = [0, -1], dtype = i64} %j = values() {value = [3, 1], dtype = i64} "
     "%y = index_put(%x, %s, [%i, %j]) {dim = 1}");
  of("%x: f64[4, 3]", "2, 3, 3", six + "%i = reshape(%i6) {shape = [2, 3]} %y = embedding(%x, %i)");
  of("%x: f64[4, 3]", "6, 3", six + "%y = index_select(%x, %i6)");
  of("%x: f64[2, 3, 4]", "2, 2, 3, 4",
     six + "%i = reshape(%i6) {shape = [2, 3]} %y = index_select(%x, %i) {dim = 1}");
  of("%x: f64[3, 5]", "3, 5", "%y, %p = sort(%x) {descending = true}");
  of("%x: f64[3, 5]", "2, 5", "%y, %p = topk(%x) {k = 2, dim = 0, largest = false}");

  of("%x: f64[2, 3, 4]", "2, 4", "%y = sum(%x) {dims = [1]}");
  of("%x: f64[2, 3, 4]", "1, 3, 1", "%y = mean(%x) {dims = [0, -1], keepdim = true}");
  of("%x: f64[?n, 4]", "4", "%y = mean(%x) {dims = [0]}");
  of("%x: f64[2, 3]", "", "%y = mean(%x)");
  of("%x: f64[2, 3, 4]", "2, 4", "%y = prod(%x) {dims = [1]}");
  of("%x: f64[2, 3]", "", "%y = prod(%x)");
  of("%x: f64[3, 4]", "3", "%y = amax(%x) {dims = [1]}");
  of("%x: f64[3, 4]", "1, 4", "%y = amin(%x) {dims = [0], keepdim = true}");
  of("%x: f64[3, 4]", "3, 4", "%y = cumsum(%x) {dim = -1}");

  for (const char* x : {"f64[2, 4, 3]", "f64[4, 3]"}) {
    of(fmt::format("%x: {}, %w: f64[3, 5]", x), x[5] == ',' ? "2, 4, 5" : "4, 5",
       "%y = matmul(%x, %w)");
  }
  of("%x: f64[3, 4], %w: f64[3, 5]", "4, 5", "%y = matmul(%x, %w) {transpose_x = true}");
  of("%x: f64[4, 3], %w: f64[5, 3]", "4, 5", "%y = matmul(%x, %w) {transpose_y = true}");
  of("%x: f64[3, 4], %w: f64[2, 5, 3]", "2, 4, 5",
     "%y = matmul(%x, %w) {transpose_x = true, transpose_y = true}");
  of("%x: f64[2, 1, 4, 3], %w: f64[3, 3, 2]", "2, 3, 4, 2", "%y = matmul(%x, %w)");
  for (const char* activation : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
    of("%x: f64[2, 3, 4], %w: f64[5, 4], %b: f64[5]", "2, 3, 5",
       fmt::format("%y = linear(%x, %w, %b) {{activation = \"{}\"}}", activation));
    of("%x: f64[3, 4], %n: f64[4], %w: f64[5, 4], %b: f64[5]", "3, 5",
       fmt::format("%y = rms_norm_linear(%x, %n, %w, %b) {{activation = \"{}\"}}", activation));
  }
  of("%x: f64[4], %w: f64[5, 4]", "5", "%y = linear(%x, %w)");
  for (const char* norm :
       {"layer_norm(%h, %w)", "rms_norm(%h, %w)"}) {  // a residual stream, which is read again
                                                      // after the norm
    of("%x: f64[3, 4], %w: f64[4]", "3, 4",
       fmt::format("%h = exp(%x) %n = {} %s = sin(%n) %y = add(%h, %s)", norm));
    of("%x: f64[3, 4], %w: f64[4]", "3, 4",
       fmt::format(
           "%h = exp(%x) %n = {} %k = mul(%n, %h) %s = sin(%k) %t = mul(%s, %h) %y = add(%t, %n)",
           norm));
  }
  of("%x: f64[4], %w: f64[5, 4], %b: f64[5]", "5", "%y = linear(%x, %w, %b)");
  of("%x: f64[3, 4], %w: f64[5, 4]", "3, 5", "%y = rms_norm_linear(%x, _, %w)");
  of("%x: f64[2, 4, 5, 4], %w: f64[6, 2, 3, 2], %b: f64[6]", "2, 6, 3, 3",
     "%y = convolution(%x, %w, %b) {padding = [1, 0], stride = [2, 1], groups = 2}");
  of("%x: f64[1, 2, 4], %w: f64[2, 3, 3]", "1, 3, 9",
     "%y = convolution(%x, %w) {transposed = true, stride = [2]}");
  of("%x: f64[1, 4, 3, 2], %w: f64[4, 1, 2, 3], %b: f64[2]", "1, 2, 6, 6",
     "%y = convolution(%x, %w, %b) {transposed = true, stride = [2, 2], output_padding = [0, 1], "
     "padding = [1, 1], dilation = [3, 2], groups = 2}");
  of("%x: f64[1, 2, 3, 4, 3], %w: f64[2, 1, 2, 2, 1]", "1, 2, 2, 2, 2",
     "%y = convolution(%x, %w) {stride = [1, 1, 2], dilation = [1, 2, 1], groups = 2}");
  of("%q: f64[4, 3, 2], %k: f64[2, 5, 2], %v: f64[2, 5, 3]", "4, 3, 3",
     "%y, %l = scaled_dot_product_attention(%q, %k, %v) {causal = true}");
  of("%q: f64[2, 2, 4, 2], %k: f64[2, 1, 5, 2], %v: f64[2, 1, 5, 3]", "2, 2, 4, 3",
     "%y, %l = scaled_dot_product_attention(%q, %k, %v) {causal = true, window = 2, scale = 0.3}");
  of("%q: f64[2, 4, 2], %k: f64[1, 3, 2], %v: f64[1, 3, 2]", "2, 4, 2",
     "%m3 = values() {value = [1, 0, 1], dtype = bool} %m0 = reshape(%m3) {shape = [1, 1, 3]} %y, "
     "%l = scaled_dot_product_attention(%q, %k, %v, %m0)");
  // The first query sees no key.
  of("%q: f64[1, 3, 2], %k: f64[1, 2, 2], %v: f64[1, 2, 2]", "1, 3, 2",
     "%y, %l = scaled_dot_product_attention(%q, %k, %v) {causal = true}");
  of("%x: f64[2, 3, 4]", "2, 3, 4", "%y = rotary_embedding(%x)");
  of("%x: f64[2, 3, 6]", "2, 3, 6",
     "%y = rotary_embedding(%x) {dim = 4, interleaved = true, inverse = true, scale = 0.5}");
  of("%x: f64[2, 3, 4]", "2, 3, 4",
     "%p = values() {value = [7, 0, 3], dtype = i32} %y = rotary_embedding(%x, %p) {dim = 2, theta "
     "= 100.0}");

  of("%x: f64[3, 4]", "3, 4", "%y = softmax(%x)");
  of("%x: f64[3, 4]", "3, 4", "%y = log_softmax(%x) {dim = 0}");
  of("%x: f64[3, 4], %w: f64[4], %b: f64[4]", "3, 4", "%y = layer_norm(%x, %w, %b) {eps = 0.01}");
  of("%x: f64[2, 3, 4], %w: f64[3, 4]", "2, 3, 4", "%y = layer_norm(%x, %w) {dims = 2}");
  of("%x: f64[3, 4]", "3, 4", "%y = layer_norm(%x)");
  of("%x: f64[3, 4], %w: f64[4]", "3, 4", "%y = rms_norm(%x, %w)");
  of("%x: f64[3, 4], %r: f64[3, 4], %w: f64[4], %b: f64[4]", "3, 4",
     "%n, %s = add_layer_norm(%x, %r, %w, %b) %y = mul(%n, %s)");
  of("%x: f64[2, 3, 2], %r: f64[2, 3, 2], %w: f64[3, 2]", "2, 3, 2",
     "%y, %s = add_layer_norm(%x, %r, %w) {dims = 2}");
  of("%x: f64[3, 4], %r: f64[3, 4], %w: f64[4]", "3, 4",
     "%n, %s = add_rms_norm(%x, %r, %w) %y = add(%n, %s)");
  of("%x: f64[3, 4], %r: f64[3, 4]", "3, 4", "%y, %s = add_rms_norm(%x, %r)");
  of("%x: f64[3, 4], %r: f64[3, 4]", "3, 4", "%n, %y = add_rms_norm(%x, %r)");
  for (const char* reduction : {"mean", "sum", "none"}) {
    const std::string shape = reduction == std::string("none") ? "3" : "";
    of("%x: f64[3, 4]", shape,
       fmt::format("%t = values() {{value = [2, -100, 0], dtype = i64}} %y = cross_entropy(%x, %t) "
                   "{{reduction = \"{}\"}}",
                   reduction));
    of("%x: f64[3, 4]", shape,
       fmt::format("%t = values() {{value = [2, 1, 0], dtype = i32}} %y = cross_entropy(%x, %t) "
                   "{{reduction = \"{}\", ignore_index = 1}}",
                   reduction));
    of("%x: f64[3, 4]", shape,
       fmt::format("%g = sum(%x){} %t = values() {{value = [2, -100, 0], dtype = i64}} %y, %d = "
                   "cross_entropy_with_gradient(%g, %x, %t) {{reduction = \"{}\"}}",
                   shape.empty() ? "" : " {dims = [1]}", reduction));
    of("%x: f64[3, 2], %w: f64[4, 2]", shape,
       fmt::format("%t = values() {{value = [2, 1, 0], dtype = i64}} %y, %l = "
                   "linear_cross_entropy(%x, %w, %t) {{reduction = \"{}\"}}",
                   reduction));
    of("%x: f64[3, 2], %w: f64[4, 2]", shape,
       fmt::format("%t = values() {{value = [-100, 1, 3], dtype = i64}} %y, %l = "
                   "linear_cross_entropy(%x, %w, %t) {{reduction = \"{}\", chunk_size = 2}}",
                   reduction));
  }
  of("%x: f64[40]", "40",
     "%p = full() {value = 0.25} %k = values() {value = [3, 4], dtype = u64} %y = dropout(%x, %p, "
     "%k)");
  of("%x: f64[6, 5]", "6, 5",
     "%p = full() {value = 0.5} %k = values() {value = [3, 4], dtype = u64} %y = dropout(%x, %p, "
     "%k) {site = 9}");
  of("%x: f64[4]", "4", "%a = cast(%x) {dtype = f64} %y = mul(%a, %x)");
  return out;
}

std::vector<GradientCase> ProgramCases() {
  return {
      {R"(program @mlp(%x: f64[?b, 6], %w1: f64[5, 6], %b1: f64[5], %w2: f64[4, 5], %unused: f64[2]) -> (loss: f64[], p: f64[?b, 4]) {
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
             return %loss, %p })"},
      {R"(program @block(%x: f64[2, 5, 8], %n: f64[8], %qkv: f64[24, 8], %o: f64[8, 8], %m: f64[8]) -> (loss: f64[]) {
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
             return %loss })",
       -1, 1}};
}

std::vector<std::string> WantedOf(const Module& m) {
  std::vector<std::string> out;
  for (const Param& p : m.functions[0].params) {
    if (p.mode == ParamMode::kIn && kFloats.Has(p.type.dtype) && p.name != "cotangent")
      out.push_back(p.name);
  }
  return out;
}

std::set<std::string> RowsOnTheWay(const Module& m) {
  const Function& f = m.functions[0];
  const ValueTypes values(f);
  const std::vector<std::string> wanted = WantedOf(m);
  Marks made(values.size()), to(values.size());
  for (size_t i = 0; i < f.params.size(); ++i)
    made[i] = std::ranges::find(wanted, f.params[i].name) != wanted.end();
  for (const Result& r : f.results) to[static_cast<size_t>(r.value)] = r.name == "loss";
  MarkMade(f, values, made);
  const Marks way = Between(f, values, made, std::move(to));
  std::set<std::string> out;
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r) {
      if (way[values.first_result[n] + r]) out.insert(f.nodes[n].op);
    }
  }
  return out;
}

std::set<std::string> RowsWithGradients() {
  std::set<std::string> out;
  for (const OpDef& row : Catalogue().rows()) {
    if (HasGradients(row.name) || row.control == Control::kRepeat || row.control == Control::kIf)
      out.insert(row.name);
  }
  return out;
}

}  // namespace opwire

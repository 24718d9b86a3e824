// Gradients of the ops with a body of one expression.
#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "ir/passes/backward.h"

namespace opwire {
namespace {

using Terms = std::vector<std::string_view>;

// With t = tanh(sqrt(2 / pi) (x + 0.044715 x^3)): (1 + t) / 2 + x (1 - t^2) sqrt(2 / pi) (1 + 3 *
// 0.044715 x^2) / 2, where x is clamped to [-10, 10]. The gradient is constant beyond, but x^2 may
// overflow.
std::string_view GeluTanhGradient() {
  static const auto* const text = [] {
    const std::string x = "minimum(maximum(x, -10), 10)", square = fmt::format("mul({0}, {0})", x);
    const std::string t =
        fmt::format("tanh(mul(mul({}, add(mul({}, 0.044715), 1)), 0.7978845608028654))", x, square);
    return new std::string(
        fmt::format("mul(g, add(mul(add({0}, 1), 0.5), mul(mul(mul({1}, 0.3989422804014327), "
                    "sub(1, mul({0}, {0}))), add(mul({2}, 0.134145), 1))))",
                    t, x, square));
  }();
  return *text;
}

const std::unordered_map<std::string_view, Terms>& BodyTable() {
  static const auto* const table = new std::unordered_map<std::string_view, Terms>{
      {"add", {"g", "g"}},
      {"sub", {"g", "neg(g)"}},
      {"mul", {"mul(g, y)", "mul(g, x)"}},
      {"div", {"div(g, y)", "neg(mul(g, div(out, y)))"}},
      {"fmod", {"g", "neg(mul(g, trunc(div(x, y))))"}},
      {"pow",
       {"where(eq(y, 0), 0, mul(g, mul(y, pow(x, sub(y, 1)))))",
        "where(bitwise_and(eq(x, 0), ge(y, 0)), 0, mul(g, mul(out, log(x))))"}},
      {"maximum",
       {"where(lt(x, y), 0, where(eq(x, y), mul(g, 0.5), g))",
        "where(lt(y, x), 0, where(eq(x, y), mul(g, 0.5), g))"}},  // of NaNs: g
      {"minimum",
       {"where(gt(x, y), 0, where(eq(x, y), mul(g, 0.5), g))",
        "where(gt(y, x), 0, where(eq(x, y), mul(g, 0.5), g))"}},
      // x / r^2 and -y / r^2, written without r^2, which would overflow. 0 at the origin and at
      // infinity. If r overflows, it is that of a quarter of x and y.
      {"atan2",
       {"where(isinf(hypot(x, y)), where(isinf(hypot(mul(x, 0.25), mul(y, 0.25))), sub(out, out), "
        "mul(mul(g, 0.25), div(div(mul(x, 0.25), hypot(mul(x, 0.25), mul(y, 0.25))), "
        "hypot(mul(x, 0.25), mul(y, 0.25))))), where(eq(hypot(x, y), 0), 0, "
        "mul(g, div(div(x, hypot(x, y)), hypot(x, y)))))",
        "where(isinf(hypot(x, y)), where(isinf(hypot(mul(x, 0.25), mul(y, 0.25))), sub(out, out), "
        "mul(mul(g, -0.25), div(div(mul(y, 0.25), hypot(mul(x, 0.25), mul(y, 0.25))), "
        "hypot(mul(x, 0.25), mul(y, 0.25))))), where(eq(hypot(x, y), 0), 0, "
        "neg(mul(g, div(div(y, hypot(x, y)), hypot(x, y))))))"}},
      // 0 at the origin. If one operand is infinite, the gradient by the other one is 0. If the
      // result overflows, that of a quarter of x and y divides.
      {"hypot",
       {"mul(g, where(isinf(x), sign(x), where(eq(out, 0), 0, where(isinf(out), "
        "div(mul(x, 0.25), hypot(mul(x, 0.25), mul(y, 0.25))), div(x, out)))))",
        "mul(g, where(isinf(y), sign(y), where(eq(out, 0), 0, where(isinf(out), "
        "div(mul(y, 0.25), hypot(mul(x, 0.25), mul(y, 0.25))), div(y, out)))))"}},
      {"logaddexp",
       {"mul(g, where(eq(x, y), 0.5, sigmoid(sub(x, y))))",
        "mul(g, where(eq(x, y), 0.5, sigmoid(sub(y, x))))"}},
      {"where", {"", "where(condition, g, 0)", "where(condition, 0, g)"}},
      {"clamp",
       {"where(bitwise_and(ge(x, min), le(x, max)), g, 0)",
        "where(bitwise_and(lt(x, min), lt(min, max)), g, 0)",
        "where(bitwise_or(gt(x, max), gt(min, max)), g, 0)"}},
      {"neg", {"neg(g)"}},
      {"abs", {"mul(g, sign(x))"}},
      {"sign", {""}},
      {"sqrt", {"mul(g, div(0.5, out))"}},
      {"rsqrt", {"mul(g, mul(-0.5, mul(out, mul(out, out))))"}},
      {"reciprocal", {"neg(mul(g, mul(out, out)))"}},
      {"exp", {"mul(g, out)"}},
      {"expm1", {"mul(g, add(out, 1))"}},
      {"log", {"div(g, x)"}},
      {"log1p", {"div(g, add(x, 1))"}},
      {"log2", {"div(g, mul(x, 0.6931471805599453))"}},
      {"log10", {"div(g, mul(x, 2.302585092994046))"}},
      {"sin", {"mul(g, cos(x))"}},
      {"cos", {"neg(mul(g, sin(x)))"}},
      {"tan", {"mul(g, add(mul(out, out), 1))"}},
      {"tanh", {"mul(g, sub(1, mul(out, out)))"}},
      {"erf", {"mul(g, mul(exp(neg(mul(x, x))), 1.1283791670955126))"}},
      {"asin", {"mul(g, rsqrt(mul(sub(1, x), add(x, 1))))"}},
      {"acos", {"neg(mul(g, rsqrt(mul(sub(1, x), add(x, 1)))))"}},
      {"sinh", {"mul(g, cosh(x))"}},
      {"cosh", {"mul(g, sinh(x))"}},
      {"asinh", {"div(g, hypot(x, 1))"}},
      // Below -1 as in libtorch, though the function is NaN there.
      {"acosh", {"mul(g, mul(rsqrt(sub(abs(x), 1)), rsqrt(add(abs(x), 1))))"}},
      {"atanh", {"div(g, mul(sub(1, x), add(x, 1)))"}},
      {"floor", {""}},
      {"ceil", {""}},
      {"round", {""}},
      {"trunc", {""}},
      {"sigmoid", {"mul(g, mul(out, sub(1, out)))"}},
      // Phi(x) + x * phi(x).
      {"gelu",
       {"mul(g, add(mul(add(erf(mul(x, 0.7071067811865476)), 1), 0.5), mul(mul(x, exp(mul(mul(x, "
        "x), -0.5))), 0.3989422804014327)))"}},
      {"gelu_tanh", {GeluTanhGradient()}},
      {"silu", {"mul(g, mul(sigmoid(x), add(mul(x, sub(1, sigmoid(x))), 1)))"}},
      {"relu", {"where(le(x, 0), 0, g)"}},
      {"copy", {"g"}},
  };
  return *table;
}

}  // namespace

std::optional<Terms> BodyGradients(std::string_view op) {
  const auto it = BodyTable().find(op);
  return it == BodyTable().end() ? std::nullopt : std::optional(it->second);
}

}  // namespace opwire

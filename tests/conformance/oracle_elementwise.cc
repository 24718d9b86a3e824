// Elementwise ops by name: floats as long double functions, integers by 128-bit arithmetic.
#include <cmath>
#include <functional>
#include <map>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

using Args = std::vector<Real>;

struct FloatOp {
  std::function<Real(const Args&)> value;
  // Ulp of the computing type; what is relative to something else comes from `error`.
  Real ulps;
  std::function<Real(const Args&, Real eps, Real least)> error = nullptr;
  bool exact_zeros = false;
};

Real Minimum(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
Real Maximum(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

const std::map<std::string, FloatOp>& FloatOps() {
  const Real c = std::sqrt(2 / M_PIl);
  static const auto* const ops = new std::map<std::string, FloatOp>{
      {"add", {[](const Args& a) { return a[0] + a[1]; }, 0.5L}},
      {"sub", {[](const Args& a) { return a[0] - a[1]; }, 0.5L}},
      {"mul", {[](const Args& a) { return a[0] * a[1]; }, 0.5L}},
      {"div", {[](const Args& a) { return a[0] / a[1]; }, 0.5L}},
      {"fmod", {[](const Args& a) { return std::fmod(a[0], a[1]); }, 0}},
      {"pow", {[](const Args& a) { return std::pow(a[0], a[1]); }, 2}},
      {"atan2", {[](const Args& a) { return std::atan2(a[0], a[1]); }, 4}},
      {"hypot", {[](const Args& a) { return std::hypot(a[0], a[1]); }, 4}},
      {"logaddexp",
       {[](const Args& a) {
          if (a[0] == a[1]) return a[0] + std::log(Real{2});
          return std::fmax(a[0], a[1]) + std::log1p(std::exp(-std::fabs(a[0] - a[1])));
        },
        2,
        [](const Args& a, Real eps, Real) {
          return 2 * eps * std::fmax(std::fabs(a[0]), std::fabs(a[1]));
        }}},
      {"maximum", {[](const Args& a) { return Maximum(a[0], a[1]); }, 0, nullptr, true}},
      {"minimum", {[](const Args& a) { return Minimum(a[0], a[1]); }, 0, nullptr, true}},
      {"clamp",
       {[](const Args& a) { return Minimum(Maximum(a[0], a[1]), a[2]); }, 0, nullptr, true}},
      {"eq", {[](const Args& a) { return a[0] == a[1]; }, 0}},
      {"ne", {[](const Args& a) { return a[0] != a[1]; }, 0}},
      {"lt", {[](const Args& a) { return a[0] < a[1]; }, 0}},
      {"le", {[](const Args& a) { return a[0] <= a[1]; }, 0}},
      {"gt", {[](const Args& a) { return a[0] > a[1]; }, 0}},
      {"ge", {[](const Args& a) { return a[0] >= a[1]; }, 0}},
      {"where", {[](const Args& a) { return a[0] != 0 ? a[1] : a[2]; }, 0, nullptr, true}},
      {"copy", {[](const Args& a) { return a[0]; }, 0, nullptr, true}},
      {"neg", {[](const Args& a) { return -a[0]; }, 0, nullptr, true}},
      {"abs", {[](const Args& a) { return std::fabs(a[0]); }, 0, nullptr, true}},
      {"sign",
       {[](const Args& a) { return std::isnan(a[0]) ? a[0] : Real(a[0] > 0) - Real(a[0] < 0); },
        0}},
      {"relu", {[](const Args& a) { return a[0] <= 0 ? Real{0} : a[0]; }, 0, nullptr, true}},
      {"sqrt", {[](const Args& a) { return std::sqrt(a[0]); }, 0.5L, nullptr, true}},
      {"rsqrt", {[](const Args& a) { return 1 / std::sqrt(a[0]); }, 2}},
      {"reciprocal", {[](const Args& a) { return 1 / a[0]; }, 0.5L}},
      {"exp", {[](const Args& a) { return std::exp(a[0]); }, 2}},
      {"expm1", {[](const Args& a) { return std::expm1(a[0]); }, 2, nullptr, true}},
      {"log", {[](const Args& a) { return std::log(a[0]); }, 2}},
      {"log1p", {[](const Args& a) { return std::log1p(a[0]); }, 2, nullptr, true}},
      {"log2", {[](const Args& a) { return std::log2(a[0]); }, 1}},
      {"log10", {[](const Args& a) { return std::log10(a[0]); }, 1}},
      {"sin", {[](const Args& a) { return std::sin(a[0]); }, 4, nullptr, true}},
      {"cos", {[](const Args& a) { return std::cos(a[0]); }, 4}},
      {"tan", {[](const Args& a) { return std::tan(a[0]); }, 4, nullptr, true}},
      {"tanh", {[](const Args& a) { return std::tanh(a[0]); }, 4, nullptr, true}},
      {"erf", {[](const Args& a) { return std::erf(a[0]); }, 4, nullptr, true}},
      {"asin", {[](const Args& a) { return std::asin(a[0]); }, 4, nullptr, true}},
      {"acos", {[](const Args& a) { return std::acos(a[0]); }, 4}},
      {"sinh", {[](const Args& a) { return std::sinh(a[0]); }, 4, nullptr, true}},
      {"cosh", {[](const Args& a) { return std::cosh(a[0]); }, 4}},
      {"asinh", {[](const Args& a) { return std::asinh(a[0]); }, 4, nullptr, true}},
      {"acosh", {[](const Args& a) { return std::acosh(a[0]); }, 4}},
      {"atanh", {[](const Args& a) { return std::atanh(a[0]); }, 4, nullptr, true}},
      {"floor", {[](const Args& a) { return std::floor(a[0]); }, 0}},
      {"ceil", {[](const Args& a) { return std::ceil(a[0]); }, 0}},
      {"round", {[](const Args& a) { return std::nearbyint(a[0]); }, 0}},
      {"trunc", {[](const Args& a) { return std::trunc(a[0]); }, 0}},
      {"isnan", {[](const Args& a) { return std::isnan(a[0]); }, 0}},
      {"isinf", {[](const Args& a) { return std::isinf(a[0]); }, 0}},
      // exp(-x) may overflow where the quotient is below the least normal number.
      {"sigmoid",
       {[](const Args& a) { return 1 / (1 + std::exp(-a[0])); }, 4,
        [](const Args&, Real, Real least) { return least; }}},
      {"silu",
       {[](const Args& a) { return a[0] / (1 + std::exp(-a[0])); }, 4,
        [](const Args& a, Real, Real least) {
          return least * std::fmax(Real{1}, std::fabs(a[0]));
        }}},
      {"gelu",
       {[](const Args& a) { return a[0] / 2 * (1 + std::erf(a[0] / std::sqrt(Real{2}))); }, 1,
        [](const Args& a, Real eps, Real) { return 4 * eps * std::fabs(a[0]); }}},
      {"gelu_tanh",
       {[c](const Args& a) {
          return a[0] / 2 * (1 + std::tanh(c * (a[0] + 0.044715L * a[0] * a[0] * a[0])));
        },
        1, [](const Args& a, Real eps, Real) { return 6 * eps * std::fabs(a[0]); }}},
  };
  return *ops;
}

Real FromBits(unsigned __int128 wide, DType t) {
  const int width = BitsOf(t);
  const uint64_t bits =
      static_cast<uint64_t>(wide) & (width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1);
  return Decode(t, &bits);
}

Real IntegerPower(DType t, __int128 base, __int128 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  unsigned __int128 result = 1, square = static_cast<unsigned __int128>(base);
  for (; exponent != 0; exponent /= 2, square = square * square) {
    if (exponent % 2 != 0) result *= square;
  }
  return FromBits(result, t);
}

Real IntegerOp(const std::string& op, DType t, const Args& args, bool* divided) {
  const __int128 a = static_cast<__int128>(args[0]),
                 b = args.size() > 1 ? static_cast<__int128>(args[1]) : 0;
  const auto wrap = [&](__int128 v) { return FromBits(static_cast<unsigned __int128>(v), t); };
  if (op == "add") return wrap(a + b);
  if (op == "sub") return wrap(a - b);
  if (op == "mul")
    return wrap(static_cast<__int128>(static_cast<unsigned __int128>(a) *
                                      static_cast<unsigned __int128>(b)));
  if (op == "div" || op == "fmod") {
    if (b == 0) *divided = true;
    return b == 0 ? 0 : wrap(op == "div" ? a / b : a % b);
  }
  if (op == "pow") return IntegerPower(t, a, b);
  if (op == "neg") return wrap(-a);
  if (op == "abs") return wrap(a < 0 ? -a : a);
  if (op == "bitwise_and") return wrap(a & b);
  if (op == "bitwise_or") return wrap(a | b);
  if (op == "bitwise_xor") return wrap(a ^ b);
  if (op == "bitwise_not") return t == DType::kBool ? Real(a == 0) : wrap(~a);
  const int count = static_cast<int>(b & (BitsOf(t) - 1));
  if (op == "bitwise_left_shift")
    return wrap(static_cast<__int128>(static_cast<unsigned __int128>(a) << count));
  if (op == "bitwise_right_shift") return wrap(a >> count);
  return FloatOps().at(op).value(args);  // orders and moves are the same
}

}  // namespace

bool ComputeElementwise(const OracleCall& call, Expected* e) {
  if (call.row->family != "elementwise") return false;
  const DType type = call.operands.back().dtype, result = e->result().dtype,
              computing = ComputingType(type);
  const bool cast = call.row->name == "cast";
  const bool floats = IsFloat(type) && !cast;
  const FloatOp* const op =
      floats || FloatOps().contains(call.row->name) ? &FloatOps().at(call.row->name) : nullptr;
  if (floats) e->error().resize(e->result().elements());
  e->exact_zeros = op != nullptr && op->exact_zeros;
  Extents index(e->result().shape.size(), 0);
  for (int64_t i = 0; i < e->result().elements(); ++i, NextIndex(e->result().shape, &index)) {
    Args args;
    for (const Tensor& t : call.operands) args.push_back(t.values[BroadcastFlat(t.shape, index)]);
    Real& v = e->result().values[i];
    if (cast) {
      v = CastValue(type, result, args[0], call.Bool(1));
    } else if (!floats) {
      v = IntegerOp(call.row->name, type, args, &e->divided);
    } else {
      v = op->value(args);
      if (result == DType::kBool) continue;
      Real error = op->ulps * Ulp(computing, v);
      if (op->error)
        error += op->error(args, Eps(computing),
                           std::ldexp(Eps(computing), computing == DType::kF64 ? -970 : -103));
      if (result != computing && op->ulps > 0) error += Ulp(result, v) * (0.5L + call.cheaper);
      e->error()[i] = error * 1.0001L;
    }
  }
  return true;
}

}  // namespace opwire::conformance

// The primitives of ir/ops/expr.h on one value of a computing type: double, float, an integer type
// or bool. A comparison gives 1 or 0 of the same type; kCast leaves the value to the store.
#ifndef OPWIRE_IR_SCALAR_PRIMITIVES_H_
#define OPWIRE_IR_SCALAR_PRIMITIVES_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "ir/ops/expr.h"

namespace opwire::ops {

// Arithmetic on integers is done in this type, where it wraps: never narrower than unsigned int, so
// that nothing promotes to int.
template <typename C>
struct Wrapping {
  using Type = std::common_type_t<std::make_unsigned_t<C>, unsigned>;
};
template <>
struct Wrapping<bool> {
  using Type = unsigned;
};

template <typename C>
C IntegerPower(C base, C exponent) {
  if (exponent < C{0}) {
    if (base == C{1}) return base;
    if (std::is_signed_v<C> && base == static_cast<C>(-1)) return (exponent & 1) != 0 ? base : C{1};
    return 0;
  }
  using W = typename Wrapping<C>::Type;
  W result = 1, square = static_cast<W>(base);
  for (W e = static_cast<W>(exponent); e != 0; e >>= 1, square *= square) {
    if ((e & 1) != 0) result *= square;
  }
  return static_cast<C>(result);
}

template <typename C>
C FloatMinMax(C a, C b, bool smaller) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return std::signbit(a) == smaller ? a : b;  // -0 < +0
  return (a < b) == smaller ? a : b;
}

// log(exp(a) + exp(b)), without overflow on the way.
template <typename C>
C LogAddExp(C a, C b) {
  if (a == b) return a + std::log(C{2});  // infinities too, whose difference is NaN
  return (a < b ? b : a) + std::log1p(std::exp(-std::fabs(a - b)));
}

template <typename C>
C FloatBinary(Prim p, C a, C b) {
  switch (p) {
    case Prim::kAdd:
      return a + b;
    case Prim::kSub:
      return a - b;
    case Prim::kMul:
      return a * b;
    case Prim::kDiv:
      return a / b;
    case Prim::kRem:
      return std::fmod(a, b);
    case Prim::kPow:
      return std::pow(a, b);
    case Prim::kAtan2:
      return std::atan2(a, b);
    case Prim::kHypot:
      return std::isinf(a) || std::isinf(b) ? std::numeric_limits<C>::infinity() : std::hypot(a, b);
    case Prim::kLogAddExp:
      return LogAddExp(a, b);
    case Prim::kMin:
      return FloatMinMax(a, b, true);
    case Prim::kMax:
      return FloatMinMax(a, b, false);
    default:
      return 0;
  }
}

template <typename C>
C IntegerBinary(Prim p, C a, C b, bool* divided) {
  using W = typename Wrapping<C>::Type;
  const W x = static_cast<W>(a), y = static_cast<W>(b);
  constexpr C kWidthMask = static_cast<C>(sizeof(C) * 8 - 1);
  switch (p) {
    case Prim::kAdd:
      return static_cast<C>(x + y);
    case Prim::kSub:
      return static_cast<C>(x - y);
    case Prim::kMul:
      return static_cast<C>(x * y);
    case Prim::kDiv:
    case Prim::kRem:
      if (b == C{0}) {
        *divided = true;
        return 0;
      }
      if (std::is_signed_v<C> && b == static_cast<C>(-1))
        return p == Prim::kDiv ? static_cast<C>(W{0} - x) : C{0};
      return p == Prim::kDiv ? static_cast<C>(a / b) : static_cast<C>(a % b);
    case Prim::kPow:
      return IntegerPower(a, b);
    case Prim::kMin:
      return b < a ? b : a;
    case Prim::kMax:
      return a < b ? b : a;
    case Prim::kAnd:
      return a & b;
    case Prim::kOr:
      return a | b;
    case Prim::kXor:
      return a ^ b;
    case Prim::kShl:
      return static_cast<C>(x << (b & kWidthMask));
    case Prim::kShr:
      return static_cast<C>(a >> (b & kWidthMask));
    default:
      return 0;
  }
}

template <typename C>
C Binary(Prim p, C a, C b, bool* divided) {
  switch (p) {
    case Prim::kEq:
      return a == b;
    case Prim::kNe:
      return a != b;
    case Prim::kLt:
      return a < b;
    case Prim::kLe:
      return a <= b;
    case Prim::kGt:
      return a > b;
    case Prim::kGe:
      return a >= b;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    return FloatBinary(p, a, b);
  } else {
    return IntegerBinary(p, a, b, divided);
  }
}

template <typename C>
C FloatUnary(Prim p, C a) {
  switch (p) {
    case Prim::kNeg:
      return -a;
    case Prim::kAbs:
      return std::fabs(a);
    case Prim::kSign:
      return a > 0 ? C{1} : a < 0 ? C{-1} : a != a ? a : C{0};
    case Prim::kSqrt:
      return std::sqrt(a);
    case Prim::kRsqrt:
      return 1 / std::sqrt(a);
    case Prim::kRecip:
      return 1 / a;
    case Prim::kExp:
      return std::exp(a);
    case Prim::kExpm1:
      return std::expm1(a);
    case Prim::kLog:
      return std::log(a);
    case Prim::kLog1p:
      return std::log1p(a);
    case Prim::kLog2:
      return std::log2(a);
    case Prim::kLog10:  // in more digits: the C library's is within 2 ulp only
      return static_cast<C>(std::log10(static_cast<long double>(a)));
    case Prim::kSin:
      return std::sin(a);
    case Prim::kCos:
      return std::cos(a);
    case Prim::kTan:
      return std::tan(a);
    case Prim::kTanh:
      return std::tanh(a);
    case Prim::kErf:
      return std::erf(a);
    case Prim::kAsin:
      return std::asin(a);
    case Prim::kAcos:
      return std::acos(a);
    case Prim::kSinh:
      return std::sinh(a);
    case Prim::kCosh:
      return std::cosh(a);
    case Prim::kAsinh:
      return std::asinh(a);
    case Prim::kAcosh:
      return std::acosh(a);
    case Prim::kAtanh:
      return std::atanh(a);
    case Prim::kFloor:
      return std::floor(a);
    case Prim::kCeil:
      return std::ceil(a);
    case Prim::kRound:
      return std::nearbyint(a);  // the default mode: half to even
    case Prim::kTrunc:
      return std::trunc(a);
    case Prim::kIsNan:
      return std::isnan(a);
    case Prim::kIsInf:
      return std::isinf(a);
    default:
      return a;
  }
}

template <typename C>
C IntegerUnary(Prim p, C a) {
  using W = typename Wrapping<C>::Type;
  switch (p) {
    case Prim::kNeg:
      return static_cast<C>(W{0} - static_cast<W>(a));
    case Prim::kAbs:
      return a < C{0} ? static_cast<C>(W{0} - static_cast<W>(a)) : a;
    case Prim::kSign:
      return static_cast<C>(C{0} < a) - static_cast<C>(a < C{0});
    case Prim::kNot:
      if constexpr (std::is_same_v<C, bool>) {
        return !a;
      } else {
        return static_cast<C>(~a);
      }
    default:
      return a;  // rounding changes no integer
  }
}

template <typename C>
C Unary(Prim p, C a) {
  if constexpr (std::is_floating_point_v<C>) {
    return FloatUnary(p, a);
  } else {
    return IntegerUnary(p, a);
  }
}

}  // namespace opwire::ops

#endif  // OPWIRE_IR_SCALAR_PRIMITIVES_H_

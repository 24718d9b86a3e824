// The primitives of ir/ops/expr.h on GPUs, on one value of a computing type: f64, f32, an integer
// type or bool.
#include "kernels/ops/gpu/device.cuh"

namespace opw::prim {

// Integers are computed in this type, where they wrap: never narrower than u32, so that nothing
// promotes to int.
template <typename T>
struct WrapOf {
  using Type = u32;
};
template <>
struct WrapOf<i64> {
  using Type = u64;
};
template <>
struct WrapOf<u64> {
  using Type = u64;
};
template <typename T>
using Wrap = typename WrapOf<T>::Type;

template <typename T>
OPW_DEVICE T FromBits(u64 bits) {
  if constexpr (kSame<T, float>)
    return FloatOf(static_cast<u32>(bits));
  else if constexpr (kSame<T, double>)
    return DoubleOf(bits);
  else
    return static_cast<T>(bits);
}

// The one quiet NaN for all.
OPW_DEVICE float Canonical(float v) { return v != v ? FloatOf(0x7fc00000u) : v; }
OPW_DEVICE double Canonical(double v) { return v != v ? DoubleOf(0x7ff8000000000000ull) : v; }

#define OPW_ARITHMETIC(NAME, OP)                                                 \
  template <typename T>                                                          \
  OPW_DEVICE T NAME(T a, T b) {                                                  \
    if constexpr (kIsFloat<T>)                                                   \
      return a OP b;                                                             \
    else                                                                         \
      return static_cast<T>(static_cast<Wrap<T>>(a) OP static_cast<Wrap<T>>(b)); \
  }
OPW_ARITHMETIC(Add, +)
OPW_ARITHMETIC(Sub, -)
OPW_ARITHMETIC(Mul, *)
#undef OPW_ARITHMETIC

// Integers: they truncate; by 0 it is 0 and raises; MIN / -1 is MIN, MIN % -1 is 0.
template <bool kRemainder, typename T>
OPW_DEVICE T Divided(T a, T b, u32& flags) {
  if (b == T(0)) {
    flags |= kRaiseDivide;
    return 0;
  }
  if constexpr (kIsSigned<T>) {
    if (b == T(-1)) return kRemainder ? T(0) : static_cast<T>(Wrap<T>(0) - static_cast<Wrap<T>>(a));
  }
  return static_cast<T>(kRemainder ? a % b : a / b);
}
// Of floats, which raise nothing.
template <typename T>
OPW_DEVICE T Div(T a, T b) {
  return a / b;
}
OPW_DEVICE float Rem(float a, float b) { return fmodf(a, b); }
OPW_DEVICE double Rem(double a, double b) { return fmod(a, b); }
template <typename T>
OPW_DEVICE T Div(T a, T b, u32& flags) {
  return Divided<false>(a, b, flags);
}
template <typename T>
OPW_DEVICE T Rem(T a, T b, u32& flags) {
  return Divided<true>(a, b, flags);
}

template <typename T>
OPW_DEVICE T Pow(T base, T exponent) {
  if constexpr (kSame<T, float>) {
    return static_cast<float>(
        pow(static_cast<double>(base), static_cast<double>(exponent)));  // powf may be off by 4 ulp
  } else if constexpr (kSame<T, double>) {
    return pow(base, exponent);
  } else {
    if constexpr (kIsSigned<T>) {
      if (exponent < T(0)) {
        if (base == T(1)) return base;
        return base == T(-1) ? ((exponent & 1) != 0 ? base : T(1)) : T(0);
      }
    }
    Wrap<T> result = 1, square = static_cast<Wrap<T>>(base);
    for (Wrap<T> e = static_cast<Wrap<T>>(exponent); e != 0; e >>= 1, square *= square) {
      if ((e & 1) != 0) result *= square;
    }
    return static_cast<T>(result);
  }
}

OPW_DEVICE bool Negative(float v) { return BitsOf(v) >> 31 != 0; }
OPW_DEVICE bool Negative(double v) { return BitsOf(v) >> 63 != 0; }
// The smaller or the larger; of floats a NaN where either is one, and -0 < +0.
template <bool kSmaller, typename T>
OPW_DEVICE T MinMax(T a, T b) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  if constexpr (kSame<T, float>) {  // one instruction, which orders zeros so too
    float out;
    if constexpr (kSmaller)
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    else
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
  }
#endif
  if constexpr (kIsFloat<T>) {
    if (a != a) return a;
    if (b != b) return b;
    if (a == b) return Negative(a) == kSmaller ? a : b;
  }
  return (a < b) == kSmaller ? a : b;
}
template <typename T>
OPW_DEVICE T Min(T a, T b) {
  return MinMax<true>(a, b);
}
template <typename T>
OPW_DEVICE T Max(T a, T b) {
  return MinMax<false>(a, b);
}

template <typename T>
OPW_DEVICE T And(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
OPW_DEVICE T Or(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
OPW_DEVICE T Xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
OPW_DEVICE T Shl(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) << (b & T(sizeof(T) * 8 - 1)));
}
template <typename T>
OPW_DEVICE T Shr(T a, T b) {
  return static_cast<T>(a >> (b & T(sizeof(T) * 8 - 1)));
}

template <typename T>
OPW_DEVICE bool Eq(T a, T b) {
  return a == b;
}
template <typename T>
OPW_DEVICE bool Ne(T a, T b) {
  return a != b;
}
template <typename T>
OPW_DEVICE bool Lt(T a, T b) {
  return a < b;
}
template <typename T>
OPW_DEVICE bool Le(T a, T b) {
  return a <= b;
}
template <typename T>
OPW_DEVICE bool Gt(T a, T b) {
  return a > b;
}
template <typename T>
OPW_DEVICE bool Ge(T a, T b) {
  return a >= b;
}

template <typename T>
OPW_DEVICE T Not(T a) {
  if constexpr (kSame<T, bool>)
    return !a;
  else
    return static_cast<T>(~a);
}
template <typename T>
OPW_DEVICE T Neg(T a) {
  if constexpr (kIsFloat<T>) return -a;
#ifdef OPW_CUDA
  // As the complement and 1, which stay: of a negated integer ptxas 13.0 loses the sign where it
  // makes one instruction of max(max(-a, -b), -c) for sm_90.
  else if constexpr (sizeof(T) <= 4) {
    u32 v = static_cast<u32>(a);
    asm("not.b32 %0, %0;\n\tadd.u32 %0, %0, 1;" : "+r"(v));
    return static_cast<T>(v);
  }
#endif
  else
    return static_cast<T>(Wrap<T>(0) - static_cast<Wrap<T>>(a));
}
template <typename T>
OPW_DEVICE T Abs(T a) {
  if constexpr (kIsFloat<T>)
    return opw::Abs(a);
  else if constexpr (kIsSigned<T>)
    return a < T(0) ? Neg(a) : a;
  else
    return a;
}
template <typename T>
OPW_DEVICE T Sign(T a) {
  if constexpr (kIsFloat<T>)
    return a > 0 ? T(1) : a < 0 ? T(-1) : a != a ? a : T(0);
  else
    return static_cast<T>((T(0) < a) - (a < T(0)));
}

OPW_DEVICE float Sqrt(float a) { return opw::Sqrt(a); }
OPW_DEVICE double Sqrt(double a) { return opw::Sqrt(a); }
template <typename T>
OPW_DEVICE T Rsqrt(T a) {
  return 1 / Sqrt(a);
}
template <typename T>
OPW_DEVICE T Recip(T a) {
  return 1 / a;
}

#define OPW_FUNCTION(NAME, FLOAT, DOUBLE)             \
  OPW_DEVICE float NAME(float x) { return FLOAT(x); } \
  OPW_DEVICE double NAME(double x) { return DOUBLE(x); }
OPW_FUNCTION(Exp, expf, exp)
OPW_FUNCTION(Expm1, expm1f, expm1)
OPW_FUNCTION(Log, logf, log)
OPW_FUNCTION(Log1p, log1pf, log1p)
OPW_FUNCTION(Sin, sinf, sin)
OPW_FUNCTION(Cos, cosf, cos)
OPW_FUNCTION(Tan, tanf, tan)
OPW_FUNCTION(Tanh, tanhf, tanh)
OPW_FUNCTION(Erf, erff, erf)
OPW_FUNCTION(Asin, asinf, asin)
OPW_FUNCTION(Acos, acosf, acos)
OPW_FUNCTION(Sinh, sinhf, sinh)
OPW_FUNCTION(Cosh, coshf, cosh)
OPW_FUNCTION(Asinh, asinhf, asinh)
OPW_FUNCTION(Acosh, acoshf, acosh)
OPW_FUNCTION(Atanh, atanhf, atanh)
OPW_FUNCTION(FloorOf, floorf, floor)
OPW_FUNCTION(CeilOf, ceilf, ceil)
OPW_FUNCTION(RoundOf, rintf, rint)  // half to even
OPW_FUNCTION(TruncOf, truncf, trunc)
#undef OPW_FUNCTION
OPW_DEVICE float Atan2(float y, float x) { return atan2f(y, x); }
OPW_DEVICE double Atan2(double y, double x) { return atan2(y, x); }
template <typename T>
OPW_DEVICE T LogAddExp(T x, T y) {
  if (x == y) return x + static_cast<T>(0.69314718055994531);  // infinities too
  return (x < y ? y : x) + Log1p(Exp(-(x < y ? y - x : x - y)));
}

// Rounding changes no integer.
#define OPW_ROUNDING(NAME)     \
  template <typename T>        \
  OPW_DEVICE T NAME(T a) {     \
    if constexpr (kIsFloat<T>) \
      return NAME##Of(a);      \
    else                       \
      return a;                \
  }
OPW_ROUNDING(Floor)
OPW_ROUNDING(Ceil)
OPW_ROUNDING(Round)
OPW_ROUNDING(Trunc)
#undef OPW_ROUNDING

template <typename T>
OPW_DEVICE bool IsNan(T a) {
  return a != a;
}
OPW_DEVICE bool IsInf(float a) { return (BitsOf(a) & 0x7fffffffu) == 0x7f800000u; }
OPW_DEVICE bool IsInf(double a) {
  return (BitsOf(a) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull;
}

// Logarithms in f64 to bases 2 and 10 by the method of FreeBSD's msun (e_log2.c, e_log10.c): within
// 0.8 ulp and exact at powers. CUDA's own are off by up to 1.4 ulp. The natural logarithm of the
// mantissa, in [sqrt(1/2), sqrt(2)), is high + low. Products of high and 32 digits are exact.
struct LogParts {
  double exponent, high, low;
};
OPW_DEVICE LogParts SplitLog(double x) {
  const bool tiny = x < 0x1p-1022;
  const u64 bits = BitsOf(tiny ? x * 0x1p54 : x);
  const i64 power = static_cast<i64>(bits - 0x3FE6A09E667F3BCDull) >> 52;
  const double f = DoubleOf(bits - (static_cast<u64>(power) << 52)) - 1.0, s = f / (2.0 + f),
               z = s * s, half = 0.5 * f * f;
  double p = 1.479819860510658591e-01;
  p = Fma(p, z, 1.531383769920937332e-01);
  p = Fma(p, z, 1.818357216161805012e-01);
  p = Fma(p, z, 2.222219843214978396e-01);
  p = Fma(p, z, 2.857142874366239149e-01);
  p = Fma(p, z, 3.999999999940941908e-01);
  p = Fma(p, z, 6.666666666666735130e-01);
  const double high = DoubleOf(BitsOf(f - half) & 0xffffffff00000000ull);
  return {static_cast<double>(power) - (tiny ? 54.0 : 0.0), high,
          f - high - half + s * (half + z * p)};
}
// l's logarithm times 1 / log(base), which is `high` + `low`; the exponent's part is
// scaled_exponent + rest.
OPW_DEVICE double LogOf(double x, double scaled_exponent, double rest, const LogParts& l,
                        double high, double low) {
  if (!(x > 0)) return DoubleOf(x == 0 ? 0xfff0000000000000ull : 0x7ff8000000000000ull);
  if (IsInf(x)) return x;
  const double most = l.high * high, sum = scaled_exponent + most;
  return (scaled_exponent - sum + most) + (rest + (l.low + l.high) * low + l.low * high) + sum;
}
OPW_DEVICE double Log2(double x) {
  const LogParts l = SplitLog(x);
  return LogOf(x, l.exponent, 0, l, 1.44269504072144627571e+00, 1.67517131648865118353e-10);
}
OPW_DEVICE double Log10(double x) {
  const LogParts l = SplitLog(x);
  return LogOf(x, l.exponent * 3.01029995663611771306e-01, l.exponent * 3.69423907715893078616e-13,
               l, 4.34294481878168880939e-01, 2.50829467116452752298e-11);
}
OPW_DEVICE float Log2(float x) { return log2f(x); }
// If f32 rounds to the middle of two numbers of f16, the next number of f32 on the value's own
// side. Then f16 of the f32 is correctly rounded, and the f32 is within an ulp.
OPW_DEVICE float Log10(float x) {
  const double y = log10(static_cast<double>(x));
  const float rounded = static_cast<float>(y);
  const u32 bits = BitsOf(rounded);
  if ((bits & 0x1fffu) != 0x1000u || rounded == y) return rounded;
  return FloatOf((rounded < y) == (rounded > 0) ? bits + 1 : bits - 1);
}
// Infinite even if the other operand is NaN.
OPW_DEVICE float Hypot(float x, float y) {
  return IsInf(x) || IsInf(y) ? FloatOf(0x7f800000u) : hypotf(x, y);
}
OPW_DEVICE double Hypot(double x, double y) {
  return IsInf(x) || IsInf(y) ? DoubleOf(0x7ff0000000000000ull) : hypot(x, y);
}

}  // namespace opw::prim

// Cheaper bodies for values of 16 bits and fewer: f32 within 2^-17 of the value, which is at most
// 1/128 of such a type's ulp. Without branches, which would cost more than both sides.
namespace opw::near {

inline constexpr float kLog2E = 1.44269504f;

OPW_DEVICE float Exp(float x) { return Exp2Near(x * kLog2E); }
// Scaled, so that neither the divisor nor its reciprocal is lost.
OPW_DEVICE float Div(float a, float b) {
  const float large = Abs(b) > 0x1p64f ? 0x1p-64f : 1.0f,
              scale = Abs(b) < 0x1p-64f ? 0x1p64f : large;
  return a * scale * RecipFast(b * scale);
}
OPW_DEVICE float Recip(float x) { return Div(1.0f, x); }
OPW_DEVICE float WithSign(float magnitude, float sign) {
  return FloatOf((BitsOf(magnitude) & 0x7fffffffu) | (BitsOf(sign) & 0x80000000u));
}
// Its series up to 1/2; beyond, formula 7.1.26 of Abramowitz and Stegun, Handbook of Mathematical
// Functions, whose absolute error is 1.5e-7.
OPW_DEVICE float Erf(float x) {
  const float t = Abs(x), z = x * x;
  const float series =
      x * Fma(z,
              Fma(z, Fma(z, Fma(z, 5.2239776e-3f, -2.6866171e-2f), 1.1283792e-1f), -3.7612639e-1f),
              1.1283792f);
  const float k = RecipFast(Fma(0.3275911f, t, 1.0f));
  const float p =
      k * Fma(k, Fma(k, Fma(k, Fma(k, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f),
              0.254829592f);
  const float beyond = WithSign(Fma(-p, Exp2Fast(-kLog2E * z), 1.0f), x);
  return t > 0.5f ? beyond : series;
}
// Within 2.5e-7 of it whatever its value, for sums beside which that is little: 1 - 2^-q(|x|),
// where q is fitted to -log2(erfc) for the least error of erfc on [0, 4.3], which is 1.6e-8.
// Beyond, q only grows, and erfc is less than f32 holds beside 1.
OPW_DEVICE float ErfBesideOne(float x) {
  const float t = Abs(x);
  const float p =
      Fma(t, Fma(t, Fma(t, Fma(t, -4.5360913e-5f, 4.4552412e-4f), -1.4894876e-3f), -7.7456550e-4f),
          2.8253634e-2f);
  const float minus_q = t * Fma(t, Fma(t, Fma(t, p, -1.4848159e-1f), -9.1841638e-1f), -1.6279086f);
  return WithSign(1.0f - Exp2Fast(minus_q), x);
}
// Its series up to 0.3; beyond, 1 - 2 / (1 + e^2x).
OPW_DEVICE float Tanh(float x) {
  const float t = Abs(x), z = x * x;
  const float series =
      x * Fma(z,
              Fma(z, Fma(z, Fma(z, 2.1869489e-2f, -5.3968254e-2f), 1.3333333e-1f), -3.3333333e-1f),
              1.0f);
  const float beyond = WithSign(Fma(-2.0f, RecipFast(1.0f + Exp2Fast(2.0f * kLog2E * t)), 1.0f), x);
  return t > 0.3f ? beyond : series;
}

}  // namespace opw::near

// Functions of f32 vectors that are computed in f64: where f32 alone would lose digits.
#ifndef OPWIRE_KERNELS_OPS_SIMD_MATH_WIDE_H_
#define OPWIRE_KERNELS_OPS_SIMD_MATH_WIDE_H_

#include <cstdint>

#include "kernels/ops/simd/math.h"

namespace opwire::ops::OPWIRE_ISA {

// f of doubles for all lanes, rounded once: for functions where f32 alone would lose digits.
template <typename Function>
inline F InDouble(F x, const Function& f) {
  typedef float Part __attribute__((vector_size(kVectorBytes / 2)));
  Part parts[2];
  __builtin_memcpy(parts, &x, sizeof(x));
  for (Part& p : parts) p = __builtin_convertvector(f(__builtin_convertvector(p, D)), Part);
  F y;
  __builtin_memcpy(&y, parts, sizeof(y));
  return x == 0.0f ? (y == 0.0f ? x : y) : y;  // odd functions keep the sign of a zero
}

// Of two, whatever the zeros.
template <typename Function>
inline F InDouble(F x, F y, const Function& f) {
  typedef float Part __attribute__((vector_size(kVectorBytes / 2)));
  Part of_x[2], of_y[2];
  __builtin_memcpy(of_x, &x, sizeof(x));
  __builtin_memcpy(of_y, &y, sizeof(y));
  for (int p = 0; p < 2; ++p)
    of_x[p] = __builtin_convertvector(
        f(__builtin_convertvector(of_x[p], D), __builtin_convertvector(of_y[p], D)), Part);
  __builtin_memcpy(&x, of_x, sizeof(x));
  return x;
}

// Moves a number that f32 would round to the middle of two numbers of f16 to the next number of f32
// on its own side. Then f16 of the f32 is correctly rounded, and the f32 is within an ulp.
inline D OffMiddlesOfF16(D x) {
  constexpr int64_t kBelowF16 = (int64_t{1} << 42) - 1, kMiddle = int64_t{1} << 41;
  constexpr int64_t kUlpOfF32 = int64_t{1} << 29;
  const Mask<double> bits = BitCast<Mask<double>>(x);
  const Mask<double> middle = (bits & ~kBelowF16) | kMiddle, off = bits - middle;
  const D moved = BitCast<D>(off > 0 ? middle + kUlpOfF32 : middle - kUlpOfF32);
  return off != 0 && off >= -kUlpOfF32 / 2 && off <= kUlpOfF32 / 2 ? moved : x;
}

inline F Expm1(F x) {
  return InDouble(x, [](D v) {
    const D series = v + v * v * Fma(v, Splat(1.0 / 6), Splat(0.5));
    return Abs(v) < 1e-4 ? series : Exp(v) - 1.0;
  });
}

inline F Log1p(F x) {
  return InDouble(x, [](D v) {
    const D series = v - v * v * Fma(v, Splat(-1.0 / 3), Splat(0.5));
    return Abs(v) < 1e-4 ? series : Log(1.0 + v);
  });
}

inline F Log2(F x) {
  return InDouble(x, [](D v) { return Log(v) * 1.44269504088896340736; });
}
inline F Log10(F x) {
  return InDouble(x, [](D v) { return OffMiddlesOfF16(Log(v) * 0.434294481903251827651); });
}

// Hyperbolic functions and their inverses: near 0 by their series, where their terms would cancel.
inline F Sinh(F x) {
  return InDouble(x, [](D v) {
    const D z = v * v, series = v + v * z * Fma(z, Splat(1.0 / 120), Splat(1.0 / 6)), e = Exp(v);
    return Abs(v) < 1e-2 ? series : 0.5 * e - 0.5 / e;
  });
}
inline F Cosh(F x) {
  return InDouble(x, [](D v) {
    const D e = Exp(v);
    return 0.5 * e + 0.5 / e;
  });
}
inline F Asinh(F x) {
  return InDouble(x, [](D v) {
    const D a = Abs(v), z = v * v, series = v + v * z * Fma(z, Splat(3.0 / 40), Splat(-1.0 / 6));
    return a < 1e-2 ? series : CopySign(Log(a + Sqrt(z + 1.0)), v);
  });
}
inline F Acosh(F x) {
  return InDouble(
      x, [](D v) { return v >= 1.0 ? Log(v + Sqrt(v * v - 1.0)) : Splat(__builtin_nan("")); });
}
inline F Atanh(F x) {
  return InDouble(x, [](D v) {
    const D z = v * v, series = v + v * z * Fma(z, Splat(1.0 / 5), Splat(1.0 / 3));
    return Abs(v) < 1e-2 ? series : 0.5 * Log((1.0 + v) / (1.0 - v));
  });
}
inline F Hypot(F x, F y) {
  return InDouble(x, y, [](D a, D b) {
    const double infinity = __builtin_inf();
    const D made = Sqrt(a * a + b * b);
    return (Abs(a) == infinity) | (Abs(b) == infinity) ? Splat(infinity) : made;
  });
}
inline F LogAddExp(F x, F y) {
  return InDouble(x, y, [](D a, D b) {
    const D e = Exp(-Abs(a - b)), series = e - e * e * Fma(e, Splat(-1.0 / 3), Splat(0.5));
    const D sum = (a < b ? b : a) + (e < 1e-4 ? series : Log(1.0 + e));
    return a == b ? a + 0.69314718055994531 : sum;
  });
}

// The quadrant, and sine and cosine of the rest.
struct Angle {
  Vec<int64_t> quadrant;
  D sine, cosine;
};
inline Angle Reduce(D v) {
  const D n = RoundEven(v * 0.636619772367581343076);
  const D x = Fma(n, Splat(-6.12323399573676603587e-17), Fma(n, Splat(-1.57079632679489655800), v)),
          z = x * x;
  const D s = Fma(x * z,
                  Polynomial(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08,
                             2.75573137070700676789e-06, -1.98412698298579493134e-04,
                             8.33333333332248946124e-03, -1.66666666666666324348e-01),
                  x);
  const D c = Fma(z * z,
                  Polynomial(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09,
                             -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                             -1.38888888888741095749e-03, 4.16666666666666019037e-02),
                  1.0 - 0.5 * z);
  return {BitCast<Vec<int64_t>>(n + 0x1.8p52), s, c};
}
inline D SinOf(const Angle& a, int64_t turn) {
  const D v = ((a.quadrant + turn) & 1) != 0 ? a.cosine : a.sine;
  return ((a.quadrant + turn) & 2) != 0 ? -v : v;
}

// Angles that the reduction above cannot take (2^30 and more) go to the library one by one.
template <typename Fast, typename Slow>
inline F Trigonometric(F x, const Fast& fast, const Slow& slow) {
  F y = InDouble(x, fast);
  const Vec<int32_t> large = Abs(x) >= 0x1p30f;
  bool any = false;
  for (int i = 0; i < Mem<float>::kLanes; ++i) any |= large[i] != 0;
  if (__builtin_expect(any, false)) {
    for (int i = 0; i < Mem<float>::kLanes; ++i) {
      if (large[i] != 0) y[i] = static_cast<float>(slow(static_cast<double>(x[i])));
    }
  }
  return y;
}
inline F Sin(F x) {
  return Trigonometric(
      x, [](D v) { return SinOf(Reduce(v), 0); }, [](double v) { return __builtin_sin(v); });
}
inline F Cos(F x) {
  return Trigonometric(
      x, [](D v) { return SinOf(Reduce(v), 1); }, [](double v) { return __builtin_cos(v); });
}
inline F Tan(F x) {
  return Trigonometric(
      x,
      [](D v) {
        const Angle a = Reduce(v);
        return SinOf(a, 0) / SinOf(a, 1);
      },
      [](double v) { return __builtin_tan(v); });
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_MATH_WIDE_H_

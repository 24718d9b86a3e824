// Functions of vectors: our own polynomials, whose bounds are those of ir/ops/expr.h.
#ifndef OPWIRE_KERNELS_OPS_SIMD_MATH_H_
#define OPWIRE_KERNELS_OPS_SIMD_MATH_H_

#include "kernels/ops/simd/vector.h"

namespace opwire::ops::OPWIRE_ISA {

using F = Vec<float>;
using D = Vec<double>;

#ifdef __AVX512F__
inline F Fma(F a, F b, F c) {
  return BitCast<F>(_mm512_fmadd_ps(BitCast<__m512>(a), BitCast<__m512>(b), BitCast<__m512>(c)));
}
inline D Fma(D a, D b, D c) {
  return BitCast<D>(_mm512_fmadd_pd(BitCast<__m512d>(a), BitCast<__m512d>(b), BitCast<__m512d>(c)));
}
inline F Sqrt(F a) { return BitCast<F>(_mm512_sqrt_ps(BitCast<__m512>(a))); }
inline D Sqrt(D a) { return BitCast<D>(_mm512_sqrt_pd(BitCast<__m512d>(a))); }
template <int kMode>
inline F RoundBy(F a) {
  return BitCast<F>(_mm512_roundscale_ps(BitCast<__m512>(a), kMode));
}
template <int kMode>
inline D RoundBy(D a) {
  return BitCast<D>(_mm512_roundscale_pd(BitCast<__m512d>(a), kMode));
}
#else
inline F Fma(F a, F b, F c) {
  return BitCast<F>(_mm256_fmadd_ps(BitCast<__m256>(a), BitCast<__m256>(b), BitCast<__m256>(c)));
}
inline D Fma(D a, D b, D c) {
  return BitCast<D>(_mm256_fmadd_pd(BitCast<__m256d>(a), BitCast<__m256d>(b), BitCast<__m256d>(c)));
}
inline F Sqrt(F a) { return BitCast<F>(_mm256_sqrt_ps(BitCast<__m256>(a))); }
inline D Sqrt(D a) { return BitCast<D>(_mm256_sqrt_pd(BitCast<__m256d>(a))); }
template <int kMode>
inline F RoundBy(F a) {
  return BitCast<F>(_mm256_round_ps(BitCast<__m256>(a), kMode | _MM_FROUND_NO_EXC));
}
template <int kMode>
inline D RoundBy(D a) {
  return BitCast<D>(_mm256_round_pd(BitCast<__m256d>(a), kMode | _MM_FROUND_NO_EXC));
}
#endif
inline F Fma(F a, F b, float c) { return Fma(a, b, Splat(c)); }
inline D Fma(D a, D b, double c) { return Fma(a, b, Splat(c)); }
template <typename V>
inline V RoundEven(V a) {
  return RoundBy<_MM_FROUND_TO_NEAREST_INT>(a);
}
template <typename V>
inline V Floor(V a) {
  return RoundBy<_MM_FROUND_TO_NEG_INF>(a);
}
template <typename V>
inline V Ceil(V a) {
  return RoundBy<_MM_FROUND_TO_POS_INF>(a);
}
template <typename V>
inline V Trunc(V a) {
  return RoundBy<_MM_FROUND_TO_ZERO>(a);
}

inline F Abs(F a) { return BitCast<F>(BitCast<Vec<uint32_t>>(a) & 0x7fffffffu); }
inline D Abs(D a) { return BitCast<D>(BitCast<Vec<uint64_t>>(a) & 0x7fffffffffffffffull); }
inline F CopySign(F a, F sign) {
  return BitCast<F>((BitCast<Vec<uint32_t>>(a) & 0x7fffffffu) |
                    (BitCast<Vec<uint32_t>>(sign) & 0x80000000u));
}
inline D CopySign(D a, D sign) {
  return BitCast<D>((BitCast<Vec<uint64_t>>(a) & 0x7fffffffffffffffull) |
                    (BitCast<Vec<uint64_t>>(sign) & 0x8000000000000000ull));
}

// v by coefficients from the highest power down.
template <typename V, typename E>
inline V Polynomial(V, E c) {
  return Splat(c);
}
template <typename V, typename E, typename... Es>
inline V Horner(V sum, V x, E c, Es... rest) {
  sum = Fma(sum, x, c);
  if constexpr (sizeof...(rest) > 0)
    return Horner(sum, x, static_cast<E>(rest)...);
  else
    return sum;
}
template <typename V, typename E, typename... Es>
inline V Polynomial(V x, E first, Es... rest) {
  return Horner(Splat(first), x, rest...);
}

// v * 2^n for whole n in [-1100, 1100], rounded once more where the result is subnormal.
inline F Scale(F v, F n) {
#ifdef __AVX512F__
  return BitCast<F>(_mm512_scalef_ps(BitCast<__m512>(v), BitCast<__m512>(n)));
#else
  const Vec<int32_t> i = __builtin_convertvector(n, Vec<int32_t>), half = i >> 1;
  return v * BitCast<F>((half + 127) << 23) * BitCast<F>((i - half + 127) << 23);
#endif
}
inline D Scale(D v, D n) {
#ifdef __AVX512F__
  return BitCast<D>(_mm512_scalef_pd(BitCast<__m512d>(v), BitCast<__m512d>(n)));
#else
  // Adding 1.5 * 2^52 leaves the integer in the low bits.
  const Vec<int64_t> i = BitCast<Vec<int64_t>>(n + 0x1.8p52) - 0x4338000000000000, half = i >> 1;
  return v * BitCast<D>((half + 1023) << 52) * BitCast<D>((i - half + 1023) << 52);
#endif
}

// exp of smaller values is zero.
template <typename E>
inline constexpr E kLogOfNothing = sizeof(E) == 8 ? -746 : -105;
// exp of x, or of `least` where x is less. REQUIRES: least >= kLogOfNothing.
inline F ExpFrom(F least, F x) {
  x = x > 89.0f ? Splat(89.0f) : x;  // a NaN stays
  x = x < least ? least : x;
  const F n = RoundEven(x * 1.44269504088896341f);
  const F r = Fma(n, Splat(-1.42860677e-06f), Fma(n, Splat(-0.693145752f), x));
  const F p = Polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                         1.6666665459e-1f, 5.0000001201e-1f);
  return Scale(Fma(p, r * r, r) + 1.0f, n);
}
inline F Exp(F x) { return ExpFrom(Splat(kLogOfNothing<float>), x); }

inline D ExpFrom(D least, D x) {
  x = x > 710.0 ? Splat(710.0) : x;
  x = x < least ? least : x;
  const D n = RoundEven(x * 1.44269504088896338700);
  const D high = Fma(n, Splat(-6.93147180369123816490e-01), x),
          low = n * 1.90821492927058770002e-10, r = high - low, t = r * r;
  const D c = r - t * Polynomial(t, 4.13813679705723846039e-08, -1.65339022054652515390e-06,
                                 6.61375632143793436117e-05, -2.77777777770155933842e-03,
                                 1.66666666666666019037e-01);
  return Scale(1.0 - ((low - r * c / (2.0 - c)) - high), n);
}
inline D Exp(D x) { return ExpFrom(Splat(kLogOfNothing<double>), x); }

inline F Log(F x) {
  const Vec<int32_t> tiny = x < 0x1p-126f;
  const F scaled = tiny ? x * 0x1p23f : x;
  const Vec<uint32_t> bits =
      BitCast<Vec<uint32_t>>(scaled);  // unsigned: those of negative numbers wrap
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const Vec<int32_t> power = BitCast<Vec<int32_t>>(bits - 0x3f3504f3u) >> 23;
  const F e = __builtin_convertvector(power, F) - (tiny ? Splat(23.0f) : F{});
  const F m = BitCast<F>(bits - (BitCast<Vec<uint32_t>>(power) << 23)) - 1.0f, z = m * m;
  const F p = Polynomial(m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                         -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f,
                         -2.4999993993e-1f, 3.3333331174e-1f);
  const F low = Fma(Splat(-0.5f), z, Fma(e, Splat(-2.12194440e-4f), m * z * p));
  F y = Fma(e, Splat(0.693359375f), m + low);
  const float infinity = __builtin_inff();
  y = x == infinity ? x : y;
  y = x == 0.0f ? Splat(-infinity) : y;
  return x >= 0.0f ? y : Splat(__builtin_nanf(""));
}

inline D Log(D x) {
  const Vec<int64_t> tiny = x < 0x1p-1022;
  const D scaled = tiny ? x * 0x1p54 : x;
  const Vec<uint64_t> bits = BitCast<Vec<uint64_t>>(scaled);
  const Vec<int64_t> power = BitCast<Vec<int64_t>>(bits - 0x3FE6A09E667F3BCDu) >> 52;
  const D e = BitCast<D>(power + 0x4338000000000000) - 0x1.8p52 - (tiny ? Splat(54.0) : D{});
  const D f = BitCast<D>(bits - (BitCast<Vec<uint64_t>>(power) << 52)) - 1.0, s = f / (2.0 + f),
          z = s * s, half = 0.5 * f * f;
  const D r =
      z * Polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01,
                     1.818357216161805012e-01, 2.222219843214978396e-01, 2.857142874366239149e-01,
                     3.999999999940941908e-01, 6.666666666666735130e-01);
  D y = e * 6.93147180369123816490e-01 -
        ((half - (s * (half + r) + e * 1.90821492927058770002e-10)) - f);
  const double infinity = __builtin_inf();
  y = x == infinity ? x : y;
  y = x == 0.0 ? Splat(-infinity) : y;
  return x >= 0.0 ? y : Splat(__builtin_nan(""));
}

inline F Tanh(F x) {
  const F a = Abs(x), z = x * x;
  const F p = Polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                         1.33314422036e-1f, -3.33332819422e-1f);
  const F near = Fma(p * z, x, x);
  return CopySign(a < 0.625f ? near : 1.0f - 2.0f / (Exp(a + a) + 1.0f), x);
}

// Two polynomials, found for error below 1 ulp: 1 - exp(p(|x|)) beyond 475/512, an odd one below.
inline F Erf(F x) {
  const F t = Abs(x), s = x * x;
  const F clipped = t > 4.0f ? Splat(4.0f) : t, square = clipped * clipped;  // 1 from 3.92 on
  F r = Fma(Splat(-1.72853470e-5f), clipped, 3.83197126e-4f);
  r = Fma(r, square, Fma(Splat(-3.88396438e-3f), clipped, 2.42546219e-2f));
  r = Fma(r, clipped, -1.06777877e-1f);
  r = Fma(r, clipped, -6.34846687e-1f);
  r = Fma(r, clipped, -1.28717512e-1f);
  r = Fma(r, clipped, -clipped);
  const F p = Polynomial(s, -5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                         -3.76125336e-1f, 1.28379166e-1f);
  return CopySign(t > 0.927734375f ? 1.0f - Exp(r) : Fma(p, x, x), x);
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_MATH_H_

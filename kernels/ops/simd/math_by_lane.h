// Functions of vectors that are computed lane by lane with the C library, or by it where the fast
// way does not hold.
#ifndef OPWIRE_KERNELS_OPS_SIMD_MATH_BY_LANE_H_
#define OPWIRE_KERNELS_OPS_SIMD_MATH_BY_LANE_H_

#include "kernels/ops/simd/math.h"

namespace opwire::ops::OPWIRE_ISA {

template <typename E>
inline constexpr int kLanesOf = Mem<E>::kLanes;

template <typename Function>
inline D ByLane(D x, const Function& f) {
  for (int i = 0; i < kLanesOf<double>; ++i) x[i] = f(x[i]);
  return x;
}
inline D Expm1(D x) {
  return ByLane(x, [](double v) { return __builtin_expm1(v); });
}
inline D Log1p(D x) {
  return ByLane(x, [](double v) { return __builtin_log1p(v); });
}
inline D Log2(D x) {
  return ByLane(x, [](double v) { return __builtin_log2(v); });
}
// In more digits: the C library's is within 2 ulp only.
inline D Log10(D x) {
  return ByLane(x, [](double v) { return static_cast<double>(__builtin_log10l(v)); });
}
inline D Sin(D x) {
  return ByLane(x, [](double v) { return __builtin_sin(v); });
}
inline D Cos(D x) {
  return ByLane(x, [](double v) { return __builtin_cos(v); });
}
inline D Tan(D x) {
  return ByLane(x, [](double v) { return __builtin_tan(v); });
}
inline D Tanh(D x) {
  return ByLane(x, [](double v) { return __builtin_tanh(v); });
}
inline D Erf(D x) {
  return ByLane(x, [](double v) { return __builtin_erf(v); });
}
inline D Asin(D x) {
  return ByLane(x, [](double v) { return __builtin_asin(v); });
}
inline D Acos(D x) {
  return ByLane(x, [](double v) { return __builtin_acos(v); });
}
inline D Sinh(D x) {
  return ByLane(x, [](double v) { return __builtin_sinh(v); });
}
inline D Cosh(D x) {
  return ByLane(x, [](double v) { return __builtin_cosh(v); });
}
inline D Asinh(D x) {
  return ByLane(x, [](double v) { return __builtin_asinh(v); });
}
inline D Acosh(D x) {
  return ByLane(x, [](double v) { return __builtin_acosh(v); });
}
inline D Atanh(D x) {
  return ByLane(x, [](double v) { return __builtin_atanh(v); });
}
inline F Asin(F x) {
  for (int i = 0; i < kLanesOf<float>; ++i) x[i] = __builtin_asinf(x[i]);
  return x;
}
inline F Acos(F x) {
  for (int i = 0; i < kLanesOf<float>; ++i) x[i] = __builtin_acosf(x[i]);
  return x;
}

inline D Pow(D x, D y) {
  for (int i = 0; i < kLanesOf<double>; ++i) x[i] = __builtin_pow(x[i], y[i]);
  return x;
}
inline D Fmod(D x, D y) {
  for (int i = 0; i < kLanesOf<double>; ++i) x[i] = __builtin_fmod(x[i], y[i]);
  return x;
}
inline F Fmod(F x, F y) {
  for (int i = 0; i < kLanesOf<float>; ++i) x[i] = __builtin_fmodf(x[i], y[i]);
  return x;
}
inline D Atan2(D y, D x) {
  for (int i = 0; i < kLanesOf<double>; ++i) y[i] = __builtin_atan2(y[i], x[i]);
  return y;
}
inline F Atan2(F y, F x) {
  for (int i = 0; i < kLanesOf<float>; ++i) y[i] = __builtin_atan2f(y[i], x[i]);
  return y;
}
inline D Hypot(D x, D y) {
  const double infinity = __builtin_inf();
  const Vec<int64_t> infinite = (Abs(x) == infinity) | (Abs(y) == infinity);
  for (int i = 0; i < kLanesOf<double>; ++i) x[i] = __builtin_hypot(x[i], y[i]);
  return infinite ? Splat(infinity) : x;  // even if the other is a signalling NaN
}
// Of equal operands without their difference, which is NaN of infinities.
inline D LogAddExp(D x, D y) {
  const D d = Abs(x - y), sum = (x < y ? y : x) + Log1p(Exp(-d));
  return x == y ? x + 0.69314718055994531 : sum;
}

// exp(y log |x|) in f64, negative where x is and y is odd. Zeros, infinities, NaNs and roots of
// negative numbers go to the library.
inline F Pow(F x, F y) {
  typedef float Part __attribute__((vector_size(kVectorBytes / 2)));
  const F base = Abs(x);
  Part bases[2], exponents[2];
  __builtin_memcpy(bases, &base, sizeof(base));
  __builtin_memcpy(exponents, &y, sizeof(y));
  for (int p = 0; p < 2; ++p) {
    bases[p] = __builtin_convertvector(
        Exp(__builtin_convertvector(exponents[p], D) * Log(__builtin_convertvector(bases[p], D))),
        Part);
  }
  F z;
  __builtin_memcpy(&z, bases, sizeof(z));
  const F half = y * 0.5f;
  const Vec<int32_t> odd = (RoundEven(half) != half) & (RoundEven(y) == y);
  z = ((x < 0.0f) & odd) != 0 ? -z : z;
  const float infinity = __builtin_inff();
  const Vec<int32_t> plain =
      (base > 0.0f) & (base < infinity) & (Abs(y) < infinity) & ((x > 0.0f) | (RoundEven(y) == y));
  bool all = true;
  for (int i = 0; i < kLanesOf<float>; ++i) all &= plain[i] != 0;
  if (__builtin_expect(!all, false)) {
    for (int i = 0; i < kLanesOf<float>; ++i) {
      if (plain[i] == 0) z[i] = __builtin_powf(x[i], y[i]);
    }
  }
  return z;
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_MATH_BY_LANE_H_

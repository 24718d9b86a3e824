// The activation of a product's sums, in the type of the sums: the elementwise ops of these names.
#include "kernels/fused/primitives.cuh"

namespace opw::matmul {

enum Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

template <int kActivation, typename C>
OPW_DEVICE C Activate(C v) {
  if constexpr (kActivation == kRelu)
    return v <= C(0) ? C(0) : v;
  else if constexpr (kActivation == kGelu)
    return C(0.5) * v * (C(1) + prim::Erf(v * C(0.70710678118654752440)));
  else if constexpr (kActivation == kGeluTanh)
    return C(0.5) * v *
           (C(1) + prim::Tanh(C(0.79788456080286535588) * (v + C(0.044715) * (v * v * v))));
  else if constexpr (kActivation == kSilu)
    return v / (C(1) + prim::Exp(-v));
  else
    return v;
}

#if defined(OPW_CUDA)
OPW_DEVICE float Exp2Approx(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
OPW_DEVICE float ReciprocalApprox(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
// The same for f32 that becomes a 16-bit float, by fewer instructions: off by at most 8 eps of f32
// times |v|. erfc as in Abramowitz and Stegun, 7.1.26.
template <int kActivation>
OPW_DEVICE float ActivateNarrow(float v) {
  constexpr float kLog2E = 1.44269504f;
  if constexpr (kActivation == kGelu) {
    const float a = Abs(v) * 0.70710678f, t = ReciprocalApprox(Fma(a, 0.3275911f, 1.0f));
    const float sum =
        Fma(Fma(Fma(Fma(t, 1.061405429f, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t,
            0.254829592f);
    const float erfc = sum * t * Exp2Approx(a * a * -kLog2E);
    return 0.5f * v * (v > 0 ? 2.0f - erfc : erfc);
  } else if constexpr (kActivation == kGeluTanh) {
    const float u = 0.79788456f * Fma(0.044715f * v * v, v, v);
    return v * ReciprocalApprox(1.0f + Exp2Approx(u * (-2 * kLog2E)));
  } else if constexpr (kActivation == kSilu) {
    return v * ReciprocalApprox(1.0f + Exp2Approx(v * -kLog2E));
  } else {
    return Activate<kActivation>(v);
  }
}
#endif

}  // namespace opw::matmul

// What becomes of a product's sums, in the type that they are kept in: the elementwise rows of these names.
#include "kernels/fused/primitives.cuh"

namespace opw::matmul {

enum Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

template <int kActivation, typename C>
OPW_DEVICE C Activate(C v) {
  if constexpr (kActivation == kRelu) return v <= C(0) ? C(0) : v;
  else if constexpr (kActivation == kGelu) return C(0.5) * v * (C(1) + prim::Erf(v * C(0.70710678118654752440)));
  else if constexpr (kActivation == kGeluTanh) return C(0.5) * v * (C(1) + prim::Tanh(C(0.79788456080286535588) * (v + C(0.044715) * (v * v * v))));
  else if constexpr (kActivation == kSilu) return v / (C(1) + prim::Exp(-v));
  else return v;
}

}  // namespace opw::matmul

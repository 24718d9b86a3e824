// The calls of matmul, linear and rms_norm_linear in the form that CPU kernels for all three use.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_FORMS_H_
#define OPWIRE_KERNELS_OPS_MATMUL_FORMS_H_

#include "kernels/ops/call.h"
#include "kernels/ops/matmul/activation.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops::matmul {

struct MatmulForm {
  static constexpr int kWeight = 1;  // the operand that x is multiplied with
  static constexpr bool kLinear = false, kNorm = false;
  static MatmulShapes ShapesOf(const opw_call* c) { return MatmulShapes(c); }
  static const opw_tensor* BiasOf(const opw_call*) { return nullptr; }
  static Activation ActivationFor(const opw_call*) { return Activation::kNone; }
};
// rms_norm_linear with kNormFirst.
template <bool kNormFirst>
struct LinearForm {
  static constexpr int kWeight = kNormFirst ? 2 : 1;
  static constexpr bool kLinear = true, kNorm = kNormFirst;
  static MatmulShapes ShapesOf(const opw_call* c) {
    return MatmulShapes(Operand(c, 0), false, Operand(c, kWeight), true, c->results[0]);
  }
  static const opw_tensor* BiasOf(const opw_call* c) {
    return Absent(Operand(c, kWeight + 1)) ? nullptr : &Operand(c, kWeight + 1);
  }
  static Activation ActivationFor(const opw_call* c) {
    return ActivationOf(c->attrs[kNormFirst ? 1 : 0]);
  }
};

// Why rms_norm_linear's x cannot be normalised by Normalise, or null.
const char* NormaliseRefuses(const opw_call* c);
// rms_norm(x, operand 1) of x's type into `to`, dense.
void Normalise(const opw_call* c, char* to);

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_FORMS_H_

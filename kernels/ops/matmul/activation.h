// The activation of a linear layer, applied to its sums.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_ACTIVATION_H_
#define OPWIRE_KERNELS_OPS_MATMUL_ACTIVATION_H_

#include <string_view>

#include "kernels/ops/call.h"

namespace opwire::ops::matmul {

// All except kNone are elementwise ops.
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

inline Activation ActivationOf(const opw_attr& a) {
  const std::string_view text = Text(a);
  return text == "relu"        ? Activation::kRelu
         : text == "gelu"      ? Activation::kGelu
         : text == "gelu_tanh" ? Activation::kGeluTanh
         : text == "silu"      ? Activation::kSilu
                               : Activation::kNone;
}

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_ACTIVATION_H_

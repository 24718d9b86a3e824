// What the optimisers' steps have in common: which rules there are, and what its scalars come to.
// Types only: files built for an instruction set include it.
#ifndef OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_
#define OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_

#include <stdint.h>

namespace opwire::ops {

enum class OptimRule : uint8_t { kAdamw, kSgd, kLion, kAdagrad, kLamb };

// A step's numbers, the same for all elements. Those that a rule does not name it does not use.
struct StepNumbers {
  double gradient;  // the factor of gradients: 1 / grad_scale, negative with maximize
  double l2;        // of the parameter, added to the gradient; 0: nothing is
  double
      decay;  // the factor of the parameter: 1 - lr * weight_decay where that is decoupled, else 1
  double rate;          // adamw: lr / (1 - beta1^step); lamb: 1 / (1 - beta1^step); else lr
  double beta1, rest1;  // rest: 1 - beta. sgd: momentum, 1 - dampening
  double beta2, rest2;
  double root;  // adamw: 1 / sqrt(1 - beta2^step), the factor of sqrt(v)
  double eps;
  double pull;   // lamb: of the parameter, added to the update
  double trust;  // lamb: lr times the tensor's coefficient
  bool nesterov;
  bool first;  // sgd: the buffer becomes the gradient
};

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_

// Shared by the optimisers' steps: the list of rules, and the numbers of a step. Types only: files
// built for an instruction set include it.
#ifndef OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_
#define OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_

#include <stdint.h>

namespace opwire::ops::optim {

enum class OptimRule : uint8_t { kAdamw, kSgd, kLion, kAdagrad, kLamb };

// A step's numbers, the same for all elements. A rule uses only those that are listed for it.
struct StepNumbers {
  double gradient;  // the factor of gradients: 1 / grad_scale, negative with maximize
  double l2;        // of the parameter, added to the gradient; 0: not added
  double decay;  // the factor of the parameter: 1 - lr * weight_decay if that is decoupled, else 1
  double rate;   // adamw: lr / (1 - beta1^step); lamb: 1 / (1 - beta1^step); else lr
  double beta1, rest1;  // rest: 1 - beta. sgd: momentum, 1 - dampening
  double beta2, rest2;
  double root;  // adamw: 1 / sqrt(1 - beta2^step), the factor of sqrt(v)
  double eps;
  double pull;   // lamb: of the parameter, added to the update
  double trust;  // lamb: lr times the tensor's coefficient
  bool nesterov;
  bool first;  // sgd: the buffer becomes the gradient
};

}  // namespace opwire::ops::optim

#endif  // OPWIRE_KERNELS_OPS_OPTIM_STEPS_H_

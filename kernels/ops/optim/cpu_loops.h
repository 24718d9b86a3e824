// Loops of the optim family over contiguous elements, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_OPTIM_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_OPTIM_CPU_LOOPS_H_

#include <stdint.h>

#include "kernels/ops/optim/steps.h"

namespace opwire::ops::optim {

// A part of the tensors of one place. Results may be operands of the place.
struct StepPart {
  void* params;  // after the step
  void* states[2];
  const void* from_params;
  const void* grads;
  const void* from_states[2];  // null: sgd has none
  int64_t n;
};
using StepLoop = void (*)(const StepPart& part, const StepNumbers& numbers);
// The sum of squares of n elements.
using SquareLoop = double (*)(const void* x, int64_t n);
// lamb: adds the sum of squares of n parameters, and that of their updates.
using LambLoop = void (*)(const StepPart& part, const StepNumbers& numbers, double* params,
                          double* updates);
// y = x * factor of n elements; whether one of y is not finite.
using ScaleLoop = bool (*)(void* y, const void* x, int64_t n, float factor);

struct OptimLoops {
  StepLoop step[5][16][2];  // by rule, type of the parameters, and whether states are f32 with
                            // narrower parameters; null: not available
  LambLoop lamb[16][2];     // by type of the parameters, and whether states are f32
  SquareLoop square[16];    // by type
  ScaleLoop scale[16];
};

const OptimLoops& OptimLoopsAvx2();
const OptimLoops& OptimLoopsAvx512();

}  // namespace opwire::ops::optim

#endif  // OPWIRE_KERNELS_OPS_OPTIM_CPU_LOOPS_H_

// Random values for the files built for an instruction set: random.h compiled for it.
#ifndef OPWIRE_KERNELS_OPS_CREATE_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_CREATE_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::create {

// Fills elements [begin, end) of a dense f32 result; `begin` is a multiple of 256 elements. a and b
// are low and high, or mean and std. For dropout they are p and unused, with x the operand.
using RandomLoop = void (*)(float* y, const float* x, uint64_t key, uint64_t high_counter,
                            int64_t begin, int64_t end, float a, float b);
struct RandomLoops {
  RandomLoop uniform, normal, dropout;
};

const RandomLoops& RandomLoopsAvx2();
const RandomLoops& RandomLoopsAvx512();

}  // namespace opwire::ops::create

#endif  // OPWIRE_KERNELS_OPS_CREATE_CPU_LOOPS_H_

// Rows of rotary_embedding, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ROTARY_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_ROTARY_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::rotary {

// The cosine and sine of position * frequencies[i] for n frequencies. All except position have the
// computing type.
using RotaryAngles = void (*)(void* cosines, void* sines, const void* frequencies, double position,
                              int64_t n);
// y = x rotated, n elements in pairs; y may be x. For halves, pair i is elements i and i + n / 2,
// and has the angle i. For neighbours it is 2i and 2i + 1. Both then have an angle, and the first
// one is negative.
using RotaryRow = void (*)(void* y, const void* x, const void* cosines, const void* sines,
                           int64_t n);
struct RotaryLoops {
  RotaryAngles angles[16];  // by element type; null: none
  RotaryRow halves[16];
  RotaryRow neighbours[16];
};

const RotaryLoops& RotaryLoopsAvx2();
const RotaryLoops& RotaryLoopsAvx512();

}  // namespace opwire::ops::rotary

#endif  // OPWIRE_KERNELS_OPS_ROTARY_CPU_LOOPS_H_

// The rotary loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/rotary/rows.inc.h"

namespace opwire::ops::rotary {

const RotaryLoops& RotaryLoopsAvx512() { return avx512::kRotaryLoops; }

}  // namespace opwire::ops::rotary

// The rotary loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/rotary/rows.inc.h"

namespace opwire::ops::rotary {

const RotaryLoops& RotaryLoopsAvx2() { return avx2::kRotaryLoops; }

}  // namespace opwire::ops::rotary

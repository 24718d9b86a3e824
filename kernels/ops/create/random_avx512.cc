// The random loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/create/random_loops.inc.h"

namespace opwire::ops::create {

const RandomLoops& RandomLoopsAvx512() { return avx512::kRandomLoops; }

}  // namespace opwire::ops::create

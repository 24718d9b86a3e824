// The random loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/create/random_loops.inc.h"

namespace opwire::ops::create {

const RandomLoops& RandomLoopsAvx2() { return avx2::kRandomLoops; }

}  // namespace opwire::ops::create

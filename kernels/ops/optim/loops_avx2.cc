// The optim loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/optim/loops.inc.h"

namespace opwire::ops::optim {

const OptimLoops& OptimLoopsAvx2() { return avx2::kOptimLoops; }

}  // namespace opwire::ops::optim

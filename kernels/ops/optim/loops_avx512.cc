// The optim loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/optim/loops.inc.h"

namespace opwire::ops::optim {

const OptimLoops& OptimLoopsAvx512() { return avx512::kOptimLoops; }

}  // namespace opwire::ops::optim

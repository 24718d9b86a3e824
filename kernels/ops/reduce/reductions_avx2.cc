// The reductions for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/reduce/reductions.inc.h"

namespace opwire::ops::reduce {

const ReduceLoops* ReductionsAvx2() { return avx2::kReductions; }

}  // namespace opwire::ops::reduce

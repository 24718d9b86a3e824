// The reductions for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/reduce/reductions.inc.h"

namespace opwire::ops::reduce {

const ReduceLoops* ReductionsAvx512() { return avx512::kReductions; }

}  // namespace opwire::ops::reduce

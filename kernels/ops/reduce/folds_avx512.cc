// The reduce loops for avx512.
#define OPWIRE_ISA avx512
#include <initializer_list>

#include "kernels/ops/reduce/folds.inc.h"

namespace opwire::ops {

const ReduceLoops& ReduceLoopsAvx512() { return avx512::kReduceLoops; }

}  // namespace opwire::ops

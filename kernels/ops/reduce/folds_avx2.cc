// The reduce loops for avx2.
#define OPWIRE_ISA avx2
#include <initializer_list>

#include "kernels/ops/reduce/folds.inc.h"

namespace opwire::ops {

const ReduceLoops& ReduceLoopsAvx2() { return avx2::kReduceLoops; }

}  // namespace opwire::ops

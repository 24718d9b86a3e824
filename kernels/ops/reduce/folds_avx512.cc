// The reductions for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/reduce/folds.inc.h"

namespace opwire::ops {

const FoldLoops* FoldsAvx512() { return avx512::kFolds; }

}  // namespace opwire::ops

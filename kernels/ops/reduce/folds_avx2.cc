// The reductions for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/reduce/folds.inc.h"

namespace opwire::ops {

const FoldLoops* FoldsAvx2() { return avx2::kFolds; }

}  // namespace opwire::ops

// Products of a few rows for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/matmul/few.inc.h"

namespace opwire::ops::matmul {

const FewLoops& FewLoopsAvx2() { return avx2::kFewLoops; }

}  // namespace opwire::ops::matmul

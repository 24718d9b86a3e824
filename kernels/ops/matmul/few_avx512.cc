// Products of a few rows for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/matmul/few.inc.h"

namespace opwire::ops::matmul {

const FewLoops& FewLoopsAvx512() { return avx512::kFewLoops; }

}  // namespace opwire::ops::matmul

// The small products for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/matmul/small.inc.h"

namespace opwire::ops::matmul {

const MatmulLoops& MatmulLoopsAvx2() { return avx2::kMatmulLoops; }

}  // namespace opwire::ops::matmul

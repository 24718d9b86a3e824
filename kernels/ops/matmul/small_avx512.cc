// The small products for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/matmul/small.inc.h"

namespace opwire::ops::matmul {

const MatmulLoops& MatmulLoopsAvx512() { return avx512::kMatmulLoops; }

}  // namespace opwire::ops::matmul

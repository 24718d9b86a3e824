// The elementwise loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/elementwise/table.inc.h"

namespace opwire::ops::elementwise {

FastElementwise FastElementwiseAvx2() { return {avx2::kOps, sizeof(avx2::kOps) / sizeof(FastOp)}; }

}  // namespace opwire::ops::elementwise

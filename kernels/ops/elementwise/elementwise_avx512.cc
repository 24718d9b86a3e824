// The elementwise loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/elementwise/table.inc.h"

namespace opwire::ops::elementwise {

FastElementwise FastElementwiseAvx512() {
  return {avx512::kOps, sizeof(avx512::kOps) / sizeof(FastOp)};
}

}  // namespace opwire::ops::elementwise

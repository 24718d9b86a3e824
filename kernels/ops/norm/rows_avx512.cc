// The norm loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/norm/rows.inc.h"

namespace opwire::ops::norm {

const NormRows& NormRowsAvx512() { return avx512::kNormRows; }

}  // namespace opwire::ops::norm

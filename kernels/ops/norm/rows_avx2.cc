// The norm loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/norm/rows.inc.h"

namespace opwire::ops::norm {

const NormRows& NormRowsAvx2() { return avx2::kNormRows; }

}  // namespace opwire::ops::norm

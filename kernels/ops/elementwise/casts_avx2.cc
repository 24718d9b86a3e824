// The cast loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/elementwise/casts.inc.h"

namespace opwire::ops::elementwise {

const FastCasts& FastCastsAvx2() { return avx2::kCasts; }

}  // namespace opwire::ops::elementwise

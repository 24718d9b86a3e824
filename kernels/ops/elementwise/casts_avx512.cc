// The cast loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/elementwise/casts.inc.h"

namespace opwire::ops::elementwise {

const FastCasts& FastCastsAvx512() { return avx512::kCasts; }

}  // namespace opwire::ops::elementwise

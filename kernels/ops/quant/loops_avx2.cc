// The quant loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/quant/loops.inc.h"

namespace opwire::ops::quant {

const QuantLoops& QuantLoopsAvx2() { return avx2::kQuantLoops; }

}  // namespace opwire::ops::quant

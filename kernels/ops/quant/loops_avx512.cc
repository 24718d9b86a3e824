// The quant loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/quant/loops.inc.h"

namespace opwire::ops::quant {

const QuantLoops& QuantLoopsAvx512() { return avx512::kQuantLoops; }

}  // namespace opwire::ops::quant

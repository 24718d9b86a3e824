// argmax, argmin and cumsum for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/reduce/scans.inc.h"

namespace opwire::ops::reduce {

const ScanLoops& ScansAvx512() { return avx512::kScans; }

}  // namespace opwire::ops::reduce

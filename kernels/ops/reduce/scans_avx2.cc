// argmax, argmin and cumsum for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/reduce/scans.inc.h"

namespace opwire::ops::reduce {

const ScanLoops& ScansAvx2() { return avx2::kScans; }

}  // namespace opwire::ops::reduce

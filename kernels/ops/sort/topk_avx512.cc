// topk's search for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/sort/topk.inc.h"

namespace opwire::ops::sort {

const TopkLoops& TopkAvx512() {
  static const TopkLoops loops = avx512::Loops();
  return loops;
}

}  // namespace opwire::ops::sort

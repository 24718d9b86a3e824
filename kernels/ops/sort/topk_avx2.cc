// topk's search for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/sort/topk.inc.h"

namespace opwire::ops::sort {

const TopkLoops& TopkAvx2() {
  static const TopkLoops loops = avx2::Loops();
  return loops;
}

}  // namespace opwire::ops::sort

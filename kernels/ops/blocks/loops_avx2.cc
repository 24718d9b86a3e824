// The loops over blocks for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/blocks/loops.inc.h"

namespace opwire::ops::blocks {

const BlocksLoops& BlocksLoopsAvx2() { return avx2::kBlocksLoops; }

}  // namespace opwire::ops::blocks

// The loops over blocks for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/blocks/loops.inc.h"

namespace opwire::ops::blocks {

const BlocksLoops& BlocksLoopsAvx512() { return avx512::kBlocksLoops; }

}  // namespace opwire::ops::blocks

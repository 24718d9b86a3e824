// The loops over blocks for avx512vnni.
#define OPWIRE_ISA avx512vnni
#include "kernels/ops/blocks/loops.inc.h"

namespace opwire::ops::blocks {

const BlocksLoops& BlocksLoopsAvx512Vnni() { return avx512vnni::kBlocksLoops; }

}  // namespace opwire::ops::blocks

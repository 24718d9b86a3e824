// The attention loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/attention/blocks.inc.h"

namespace opwire::ops {

const AttentionLoops& AttentionLoopsAvx2() { return avx2::kAttentionLoops; }

}  // namespace opwire::ops

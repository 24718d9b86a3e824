// The attention loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/attention/backward.inc.h"
#include "kernels/ops/attention/blocks.inc.h"

namespace opwire::ops::attention {

const AttentionLoops& AttentionLoopsAvx2() { return avx2::kAttentionLoops; }

const AttentionBackwardLoops& AttentionBackwardLoopsAvx2() { return avx2::kAttentionBackwardLoops; }

}  // namespace opwire::ops::attention

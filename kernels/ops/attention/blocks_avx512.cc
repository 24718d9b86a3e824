// The attention loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/attention/backward.inc.h"
#include "kernels/ops/attention/blocks.inc.h"

namespace opwire::ops::attention {

const AttentionLoops& AttentionLoopsAvx512() { return avx512::kAttentionLoops; }

const AttentionBackwardLoops& AttentionBackwardLoopsAvx512() {
  return avx512::kAttentionBackwardLoops;
}

}  // namespace opwire::ops::attention

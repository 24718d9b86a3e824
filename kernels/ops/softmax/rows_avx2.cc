// The softmax loops for avx2.
#define OPWIRE_ISA avx2
#include "kernels/ops/softmax/rows.inc.h"

namespace opwire::ops::softmax {

const SoftmaxRows& SoftmaxRowsAvx2() { return avx2::kSoftmaxRows; }

}  // namespace opwire::ops::softmax

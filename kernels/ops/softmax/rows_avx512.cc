// The softmax loops for avx512.
#define OPWIRE_ISA avx512
#include "kernels/ops/softmax/rows.inc.h"

namespace opwire::ops::softmax {

const SoftmaxRows& SoftmaxRowsAvx512() { return avx512::kSoftmaxRows; }

}  // namespace opwire::ops::softmax

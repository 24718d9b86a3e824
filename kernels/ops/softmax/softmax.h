// The parts of the softmax family.
#ifndef OPWIRE_KERNELS_OPS_SOFTMAX_SOFTMAX_H_
#define OPWIRE_KERNELS_OPS_SOFTMAX_SOFTMAX_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::softmax {

void AddSoftmaxReference(VariantTable& table);
// "avx512" and "avx2".
void AddSoftmaxFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::softmax

#endif  // OPWIRE_KERNELS_OPS_SOFTMAX_SOFTMAX_H_

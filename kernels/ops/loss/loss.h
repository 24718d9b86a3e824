// The parts of the loss family.
#ifndef OPWIRE_KERNELS_OPS_LOSS_LOSS_H_
#define OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops {

void AddLossReference(VariantTable& table);
// "avx512" and "avx2".
void AddLossFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_LOSS_LOSS_H_

// The parts of the create family.
#ifndef OPWIRE_KERNELS_OPS_CREATE_CREATE_H_
#define OPWIRE_KERNELS_OPS_CREATE_CREATE_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::create {

void AddCreateReference(VariantTable& table);
// "avx512" and "avx2" of the random ops for f32.
void AddCreateFast(VariantTable& table, const Isa& isa);
// "generic": zeros, full and constant.
void AddFills(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::create

#endif  // OPWIRE_KERNELS_OPS_CREATE_CREATE_H_

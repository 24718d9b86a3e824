// The parts of the rotary family.
#ifndef OPWIRE_KERNELS_OPS_ROTARY_ROTARY_H_
#define OPWIRE_KERNELS_OPS_ROTARY_ROTARY_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::rotary {

void AddRotaryReference(VariantTable& table);
// "avx512" and "avx2".
void AddRotaryFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::rotary

#endif  // OPWIRE_KERNELS_OPS_ROTARY_ROTARY_H_

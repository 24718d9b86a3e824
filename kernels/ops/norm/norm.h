// The parts of the norm family.
#ifndef OPWIRE_KERNELS_OPS_NORM_NORM_H_
#define OPWIRE_KERNELS_OPS_NORM_NORM_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::norm {

void AddNormReference(VariantTable& table);
void AddNormBackwardReference(VariantTable& table);
// "avx512" and "avx2".
void AddNormFast(VariantTable& table, const Isa& isa);
void AddNormBackward(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::norm

#endif  // OPWIRE_KERNELS_OPS_NORM_NORM_H_

// The parts of the sampling family.
#ifndef OPWIRE_KERNELS_OPS_SAMPLING_SAMPLING_H_
#define OPWIRE_KERNELS_OPS_SAMPLING_SAMPLING_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::sampling {

void AddSamplingReference(VariantTable& table);
// "avx512" and "avx2".
void AddSamplingFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::sampling

#endif  // OPWIRE_KERNELS_OPS_SAMPLING_SAMPLING_H_

// The parts of the elementwise family.
#ifndef OPWIRE_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define OPWIRE_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::elementwise {

void AddElementwiseReference(VariantTable& table);
// "avx512" and "avx2", for the types that the tables in cpu_loops.h have loops for.
void AddElementwiseFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::elementwise

#endif  // OPWIRE_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

// The parts of the matmul family.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_MATMUL_H_
#define OPWIRE_KERNELS_OPS_MATMUL_MATMUL_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::matmul {

void AddMatmulReference(VariantTable& table);
void AddLinearReference(VariantTable& table);
void AddMatmulOneDnn(VariantTable& table, const Isa& isa);
void AddMatmulSmall(VariantTable& table, const Isa& isa);
void AddMatmulDot(VariantTable& table, const Isa& isa);
void AddLinearFew(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_MATMUL_H_

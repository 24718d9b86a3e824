// The parts of the reduce family.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_REDUCE_H_
#define OPWIRE_KERNELS_OPS_REDUCE_REDUCE_H_

#include "kernels/abi.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::reduce {

void AddReduceReference(VariantTable& table);
// "avx512" and "avx2": the reductions; argmax, argmin and cumsum.
void AddReductions(VariantTable& table, const Isa& isa);
void AddScans(VariantTable& table, const Isa& isa);

// opw_kernel::supports of the ops that have no result for empty operands.
const char* SupportsReductionOfSomething(const opw_call* c);
const char* SupportsArgOfSomething(const opw_call* c);

}  // namespace opwire::ops::reduce

#endif  // OPWIRE_KERNELS_OPS_REDUCE_REDUCE_H_

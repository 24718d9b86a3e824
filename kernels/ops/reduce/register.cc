// The reduce family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/reduce.h"

namespace opwire::ops::reduce {

void AddReduce(VariantTable& table, const Isa& isa) {
  AddReduceReference(table);
  AddReductions(table, isa);
  AddScans(table, isa);
}

}  // namespace opwire::ops::reduce

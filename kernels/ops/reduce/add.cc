// The reduce family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/reduce.h"

namespace opwire::ops {

void AddReduce(VariantTable& table, const Isa& isa) {
  AddReduceReference(table);
  AddReduceFast(table, isa);
}

}  // namespace opwire::ops

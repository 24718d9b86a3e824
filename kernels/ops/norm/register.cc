// The norm family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/norm/norm.h"

namespace opwire::ops::norm {

void AddNorm(VariantTable& table, const Isa& isa) {
  AddNormReference(table);
  AddNormBackwardReference(table);
  AddNormFast(table, isa);
  AddNormBackward(table, isa);
}

}  // namespace opwire::ops::norm

// The elementwise family's variants.
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/families.h"

namespace opwire::ops::elementwise {

void AddElementwise(VariantTable& table, const Isa& isa) {
  AddElementwiseReference(table);
  AddElementwiseFast(table, isa);
}

}  // namespace opwire::ops::elementwise

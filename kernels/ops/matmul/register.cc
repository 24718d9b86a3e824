// The matmul family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"

namespace opwire::ops::matmul {

void AddMatmul(VariantTable& table, const Isa& isa) {
  AddMatmulReference(table);
  AddLinearReference(table);
  AddMatmulOneDnn(table, isa);
  AddMatmulSmall(table, isa);
  AddMatmulDot(table, isa);
  AddLinearFew(table, isa);
}

}  // namespace opwire::ops::matmul

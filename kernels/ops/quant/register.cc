// The quant family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/quant/quant.h"

namespace opwire::ops::quant {

void AddQuant(VariantTable& table, const Isa& isa) {
  AddQuantReference(table);
  AddQuantFast(table, isa);
}

}  // namespace opwire::ops::quant

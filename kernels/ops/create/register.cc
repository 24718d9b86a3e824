// The create family's variants.
#include "kernels/ops/create/create.h"
#include "kernels/ops/families.h"

namespace opwire::ops::create {

void AddCreate(VariantTable& table, const Isa& isa) {
  AddCreateReference(table);
  AddCreateFast(table, isa);
  AddFills(table, isa);
}

}  // namespace opwire::ops::create

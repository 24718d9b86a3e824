// The sort family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/sort/sort.h"

namespace opwire::ops::sort {

void AddSort(VariantTable& table, const Isa& isa) {
  AddSortReference(table);
  AddRadix(table, isa);
  AddTopk(table, isa);
}

}  // namespace opwire::ops::sort

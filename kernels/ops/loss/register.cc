// The loss family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"

namespace opwire::ops::loss {

void AddLoss(VariantTable& table, const Isa& isa) {
  AddLossReference(table);
  AddLossFast(table, isa);
  AddLinearLossReference(table);
  AddLinearLoss(table, isa);
}

}  // namespace opwire::ops::loss

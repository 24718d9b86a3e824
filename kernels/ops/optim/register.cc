// The optim family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/optim/optim.h"

namespace opwire::ops::optim {

void AddOptim(VariantTable& table, const Isa& isa) {
  AddOptimReference(table);
  AddOptimFast(table, isa);
}

}  // namespace opwire::ops::optim

// The softmax family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops::softmax {

void AddSoftmax(VariantTable& table, const Isa& isa) {
  AddSoftmaxReference(table);
  AddSoftmaxFast(table, isa);
}

}  // namespace opwire::ops::softmax

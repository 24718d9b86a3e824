// The sampling family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/sampling/sampling.h"

namespace opwire::ops::sampling {

void AddSampling(VariantTable& table, const Isa& isa) {
  AddSamplingReference(table);
  AddSamplingFast(table, isa);
}

}  // namespace opwire::ops::sampling

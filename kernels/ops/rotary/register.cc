// The rotary family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/rotary/rotary.h"

namespace opwire::ops::rotary {

void AddRotary(VariantTable& table, const Isa& isa) {
  AddRotaryReference(table);
  AddRotaryFast(table, isa);
}

}  // namespace opwire::ops::rotary

// The attention family's variants.
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/families.h"

namespace opwire::ops::attention {

void AddAttention(VariantTable& table, const Isa& isa) {
  AddAttentionReference(table);
  AddAttentionBackwardReference(table);
  AddAttentionFast(table, isa);
  AddAttentionBackwardFast(table, isa);
  AddKvAttentionReference(table);
  AddKvAttention(table, isa);
  AddKvAppendReference(table);
  AddKvAppend(table, isa);
}

}  // namespace opwire::ops::attention

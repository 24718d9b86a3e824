// The parts of the attention family.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_ATTENTION_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_ATTENTION_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::attention {

void AddAttentionReference(VariantTable& table);
void AddAttentionBackwardReference(VariantTable& table);
// "avx512" and "avx2", these two.
void AddAttentionFast(VariantTable& table, const Isa& isa);
void AddAttentionBackwardFast(VariantTable& table, const Isa& isa);
void AddKvAttentionReference(VariantTable& table);
// "avx512" and "avx2".
void AddKvAttention(VariantTable& table, const Isa& isa);
void AddKvAppendReference(VariantTable& table);
// "rows".
void AddKvAppend(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_ATTENTION_H_

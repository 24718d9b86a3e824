// One function a family: adds its variants to the table. table.cc calls them all.
#ifndef OPWIRE_KERNELS_OPS_FAMILIES_H_
#define OPWIRE_KERNELS_OPS_FAMILIES_H_

#include <string>
#include <string_view>
#include <utility>

#include "ir/base/dtype.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops {

void AddElementwise(VariantTable& table, const Isa& isa);
void AddShape(VariantTable& table, const Isa& isa);
void AddCreate(VariantTable& table, const Isa& isa);
void AddReduce(VariantTable& table, const Isa& isa);
void AddSort(VariantTable& table, const Isa& isa);
void AddSoftmax(VariantTable& table, const Isa& isa);
void AddNorm(VariantTable& table, const Isa& isa);
void AddMatmul(VariantTable& table, const Isa& isa);
void AddConvolution(VariantTable& table, const Isa& isa);
void AddAttention(VariantTable& table, const Isa& isa);
void AddRotary(VariantTable& table, const Isa& isa);
void AddLoss(VariantTable& table, const Isa& isa);
void AddOptim(VariantTable& table, const Isa& isa);
void AddQuant(VariantTable& table, const Isa& isa);
void AddBlocks(VariantTable& table, const Isa& isa);
void AddSampling(VariantTable& table, const Isa& isa);

// Adds the variant "reference" of an op, for all element types of its first type variable.
void AddReference(VariantTable& table, std::string_view op, const opw_kernel& kernel);
// Adds a production variant built into this program. `set` is the instruction set it needs (as in
// Isa::Missing). `restriction` and `packing` are those of Variant.
void AddProduction(VariantTable& table, const Isa& isa, std::string_view op, std::string_view name,
                   std::string_view set, int priority, DTypeSet dtypes, const opw_kernel& kernel,
                   std::string_view restriction = "", const Packing* packing = nullptr);

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_FAMILIES_H_

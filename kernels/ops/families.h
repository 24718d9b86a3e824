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

namespace elementwise {
void AddElementwise(VariantTable& table, const Isa& isa);
}
namespace shape {
void AddShape(VariantTable& table, const Isa& isa);
}
namespace create {
void AddCreate(VariantTable& table, const Isa& isa);
}
namespace reduce {
void AddReduce(VariantTable& table, const Isa& isa);
}
namespace sort {
void AddSort(VariantTable& table, const Isa& isa);
}
namespace softmax {
void AddSoftmax(VariantTable& table, const Isa& isa);
}
namespace norm {
void AddNorm(VariantTable& table, const Isa& isa);
}
namespace matmul {
void AddMatmul(VariantTable& table, const Isa& isa);
}
namespace convolution {
void AddConvolution(VariantTable& table, const Isa& isa);
}
namespace attention {
void AddAttention(VariantTable& table, const Isa& isa);
}
namespace rotary {
void AddRotary(VariantTable& table, const Isa& isa);
}
namespace loss {
void AddLoss(VariantTable& table, const Isa& isa);
}
namespace optim {
void AddOptim(VariantTable& table, const Isa& isa);
}
namespace quant {
void AddQuant(VariantTable& table, const Isa& isa);
}
namespace blocks {
void AddBlocks(VariantTable& table, const Isa& isa);
}
namespace sampling {
void AddSampling(VariantTable& table, const Isa& isa);
}

// Adds the variant "reference" of an op, for all element types of its first type variable.
void AddReference(VariantTable& table, std::string_view op, const opw_kernel& kernel);
// Adds a production variant built into this program. `set` is the instruction set it needs (as in
// Isa::Missing). `restriction` and `packing` are those of Variant.
void AddProduction(VariantTable& table, const Isa& isa, std::string_view op, std::string_view name,
                   std::string_view set, int priority, DTypeSet dtypes, const opw_kernel& kernel,
                   std::string_view restriction = "", const Packing* packing = nullptr);

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_FAMILIES_H_

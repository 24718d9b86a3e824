// The matrix product's variants on GPUs.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_H_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::gpu {

// Every type and all strides.
Status PlanMatmulTiles(const Call& call, Plan& plan);

void AddMatmulCublasLt(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

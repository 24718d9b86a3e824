// Functions that the GPU sources of this folder use from each other to add their plans.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_GPU_H_
#define OPWIRE_KERNELS_OPS_SHAPE_GPU_H_

#include <memory>

#include "kernels/ops/gpu/code.h"
#include "kernels/select/variant.h"

namespace opwire::gpu::shape {

void AddEmbeddingBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_GPU_H_

// The kernels for GPUs, family by family.
#ifndef OPWIRE_KERNELS_OPS_GPU_FAMILIES_H_
#define OPWIRE_KERNELS_OPS_GPU_FAMILIES_H_

#include <memory>

#include "kernels/ops/gpu/code.h"
#include "kernels/select/variant.h"

namespace opwire::gpu {

// Makes the object that compiles and loads the kernels of this device, with the paths of the
// options.
std::shared_ptr<Code> MakeCode(GpuDevice& device, const KernelOptions& options);

// All of them, compiled as they are needed.
void AddAll(VariantTable& table, const std::shared_ptr<Code>& code);

void AddElementwiseGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddCreateGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddShapeGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddMatmulGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddConvolutionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddKvAppendGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddKvAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddRotaryGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddSoftmaxGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddSoftmaxBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddReduceGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddScanGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddSortGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddNormGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddNormBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddLossGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddOptimGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddQuantGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddBlocksGpu(VariantTable& table, const std::shared_ptr<Code>& code);
void AddSamplingGpu(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FAMILIES_H_

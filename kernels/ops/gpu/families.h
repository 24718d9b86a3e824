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

namespace elementwise {
void AddElementwiseGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace create {
void AddCreateGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace shape {
void AddShapeGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace matmul {
void AddMatmulGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace convolution {
void AddConvolutionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace attention {
void AddAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace attention {
void AddKvAppendGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace attention {
void AddKvAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace rotary {
void AddRotaryGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace softmax {
void AddSoftmaxGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace softmax {
void AddSoftmaxBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace reduce {
void AddReduceGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace reduce {
void AddScanGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace sort {
void AddSortGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace norm {
void AddNormGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace norm {
void AddNormBackwardGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace loss {
void AddLossGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace optim {
void AddOptimGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace quant {
void AddQuantGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace blocks {
void AddBlocksGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}
namespace sampling {
void AddSamplingGpu(VariantTable& table, const std::shared_ptr<Code>& code);
}

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FAMILIES_H_

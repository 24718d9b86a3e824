// The parts of attention on GPUs.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_H_

#include <memory>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::attention {

// The portable kernels: any type, size and stride.
Status PlanAttention(const Call& call, Plan& plan);
Status PlanAttentionBackward(const Call& call, Plan& plan);

// "cudnn": f16 and bf16 on tensor cores. Of the gradient two: "cudnn", whose sums' order may differ
// from run to run, and "cudnn-ordered".
void AddAttentionCudnn(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_H_

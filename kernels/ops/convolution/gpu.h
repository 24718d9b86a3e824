// The parts of convolution on GPUs.
#ifndef OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_
#define OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_

#include <memory>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::convolution {

// The portable kernels: any float, size and stride.
Status PlanConvolution(const Call& call, Plan& plan);
Status PlanConvolutionBackward(const Call& call, Plan& plan);
// Parts of them: a convolution without its bias, and one gradient. Without kSplit they take no
// workspace.
template <bool kSplit>
Status PlanWithoutBias(const Call& call, Plan& plan);
template <bool kSplit>
Status PlanGradInput(const Call& call, Plan& plan);
template <bool kSplit>
Status PlanGradWeight(const Call& call, Plan& plan);

// "cudnn": f32, and f16 and bf16 on tensor cores. Of the gradients two: "cudnn", whose sums' order
// may differ from run to run, and "cudnn-ordered".
void AddConvolutionCudnn(VariantTable& table, const std::shared_ptr<Code>& code);

}  // namespace opwire::gpu::convolution

#endif  // OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_

// The parts of convolution on GPUs.
#ifndef OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_
#define OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_

#include <memory>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// The portable kernels: any float, size and stride.
Status PlanConvolution(const Call& call, Plan& plan);
Status PlanConvolutionBackward(const Call& call, Plan& plan);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_H_

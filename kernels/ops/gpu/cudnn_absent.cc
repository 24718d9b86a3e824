// What stands in for cuDNN in a build without it.
#include "kernels/ops/gpu/cudnn.h"
#include "kernels/ops/gpu/libraries.h"

namespace opwire::gpu {

void StartCudnn(GpuDevice&) {}

const char* WithoutCudnn(bool) { return "this build has no cuDNN: its headers and cudnn_frontend.h were not found"; }

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(const GpuDevice&, const CudnnAttention&) { return Unimplemented("{}", WithoutCudnn(false)); }
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(const GpuDevice&, const CudnnAttention&) { return Unimplemented("{}", WithoutCudnn(false)); }
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(const GpuDevice&, const CudnnConvolution&) { return Unimplemented("{}", WithoutCudnn(false)); }

}  // namespace opwire::gpu

// Replaces cudnn.cc in a build without the frontend or headers of cuDNN.
#include "kernels/ops/gpu/cudnn.h"
#include "kernels/ops/gpu/libraries.h"

namespace opwire::gpu {

void StartCudnn(Code&) {}

const char* WithoutCudnn(bool) {
  return "this build has no cuDNN: its headers and cudnn_frontend.h were not found";
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(Code&, const CudnnAttention&) {
  return Unimplemented("{}", WithoutCudnn(false));
}
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(Code&, const CudnnAttention&) {
  return Unimplemented("{}", WithoutCudnn(false));
}
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(Code&, const CudnnConvolution&) {
  return Unimplemented("{}", WithoutCudnn(false));
}

}  // namespace opwire::gpu

// Which libraries a device has.
#include "kernels/ops/gpu/libraries.h"

namespace opwire::gpu {

void StartLibraries(Code& code) {
  if (code.device().driver().vendor() != Vendor::kCuda) return;
  matmul::StartCublasLt(code);
  StartCudnn(code);
}

}  // namespace opwire::gpu

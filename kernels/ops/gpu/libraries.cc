// Which libraries a device has.
#include "kernels/ops/gpu/libraries.h"

namespace opwire::gpu {

void StartLibraries(GpuDevice& device) {
  if (device.driver().vendor() != Vendor::kCuda) return;
  StartCublasLt(device);
  StartCudnn(device);
}

}  // namespace opwire::gpu

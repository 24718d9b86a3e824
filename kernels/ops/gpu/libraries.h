// The vendor's libraries of a device, started before a program waits for them: opened, with handles, and with what each loads for the first plan that it makes. On an
// H200 that takes a quarter of a second.
#ifndef OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_
#define OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

#include "kernels/device/gpu/gpu_device.h"

namespace opwire::gpu {

// Those that this kind of device has. What goes wrong is told to who asks for a plan. Any thread.
void StartLibraries(GpuDevice& device);

// Of which it is made.
void StartCublasLt(GpuDevice& device);
void StartCudnn(GpuDevice& device);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

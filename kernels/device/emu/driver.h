// The functions of a GPU's driver (kernels/device/gpu/driver.h) for emulated GPUs: 0 has waves of
// 32 lanes and 227 KiB of shared memory a block, 1 of 64 and 64 KiB. What is put on a stream is
// done when the call returns, or recorded where the stream captures. A kernel that does what it
// must not fails at its launch, and from then on, as on a GPU, all waiting for a stream does, until
// no context is held. Modules are shared libraries that jit::EmuCompiler made.
#ifndef OPWIRE_KERNELS_DEVICE_EMU_DRIVER_H_
#define OPWIRE_KERNELS_DEVICE_EMU_DRIVER_H_

#include <cstddef>

#include "kernels/device/gpu/driver.h"

namespace opwire::gpu::emu {

Api Functions();
Result Copy(void* to, const void* from, size_t bytes, Stream stream);
Result Retain(void** context, int device);
Result Release(int device);
Result SetCurrent(void* context);
Result ErrorName(int result, const char** name);
// Of kLaunchFailed what went wrong in this thread's last launch.
Result ErrorText(int result, const char** text);
int WaveOf(int device);

}  // namespace opwire::gpu::emu

#endif  // OPWIRE_KERNELS_DEVICE_EMU_DRIVER_H_

// The functions of a GPU's driver (kernels/device/gpu/driver.h) for emulated GPUs. GPU 0 has waves
// of 32 lanes and 227 KiB of shared memory per block. GPU 1 has waves of 64 lanes and 64 KiB. Work
// on a stream is done when the call returns, or recorded if the stream captures. A kernel with an
// error fails at its launch. Afterwards, as on a GPU, all waits for a stream fail until no context
// is held. Modules are shared libraries that jit::EmuCompiler made.
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
// The error of this thread's last launch, if `result` is kLaunchFailed.
Result ErrorText(int result, const char** text);
int WaveOf(int device);

}  // namespace opwire::gpu::emu

#endif  // OPWIRE_KERNELS_DEVICE_EMU_DRIVER_H_

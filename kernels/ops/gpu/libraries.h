// The vendor's libraries of a device, started before a program waits for them: opened, with
// handles, and with what each loads for the first plan that it makes. On an H200 that takes a
// quarter of a second.
#ifndef OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_
#define OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

// Those that this kind of device has. What goes wrong is told to who asks for a plan. Any thread.
void StartLibraries(Code& code);

// Of which it is made.
void StartCublasLt(Code& code);
void StartCudnn(Code& code);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

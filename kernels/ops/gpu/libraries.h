// The vendor's libraries of a device, started before a program needs them. They are opened, get
// handles, and load the parts that their first plan needs. On an H200 that takes a quarter of a
// second.
#ifndef OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_
#define OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

// Starts those that this kind of device has. Errors are reported by later plans. Any thread.
void StartLibraries(Code& code);

// Parts of StartLibraries, one for each of the two libraries.
namespace matmul {
void StartCublasLt(Code& code);
}
void StartCudnn(Code& code);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_LIBRARIES_H_

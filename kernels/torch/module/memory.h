// ATen's allocations, from the executor's memory.
//
// The module's allocator replaces ATen's allocator for a cpu when the first session opens, and its
// caching one for CUDA (cuda.h). It passes each allocation to the session whose call runs; between
// calls to the session that ran last. A block is returned to the session that it came from. Most
// blocks are returned when their tensors end with the call; those that libtorch keeps, when the
// process ends.
#ifndef OPWIRE_KERNELS_TORCH_MODULE_MEMORY_H_
#define OPWIRE_KERNELS_TORCH_MODULE_MEMORY_H_

#include <cstddef>

#include "kernels/torch/interface.h"

namespace opwire::torch_module {

// A host that blocks may outlive.
struct Source;
Source* AddSource(const opw_torch_host& host);
// Blocks that are still out are never given back: they go with the device.
void CloseSource(Source* source);
// From now on memory of its kind of device comes from there.
void UseSource(Source* source);

// Throws Exhausted. `cuda`: memory of the GPU.
void* Allocate(size_t bytes, bool cuda);
void Free(void* memory);

// For a cpu's memory. Once.
void InstallCpuAllocator();

}  // namespace opwire::torch_module

#endif  // OPWIRE_KERNELS_TORCH_MODULE_MEMORY_H_

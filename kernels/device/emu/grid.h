// Runs a launch of an emulated kernel block after block. The threads of a block are fibers, which
// switch when they wait for each other.
#ifndef OPWIRE_KERNELS_DEVICE_EMU_GRID_H_
#define OPWIRE_KERNELS_DEVICE_EMU_GRID_H_

#include <string>

#include "kernels/jit/emu_machine.h"

namespace opwire::gpu::emu {

struct Launch {
  const opw_emu::Unit* unit;
  const opw_emu::Kernel* kernel;
  opw_emu::Dim3 grid, block;
  unsigned shared_bytes;  // dynamic
  void** params;
};

inline constexpr int kMaxThreads = 1024;           // a block
inline constexpr unsigned kMaxShared = 227 << 10;  // of any device

// Returns an empty string if the kernel ran. Otherwise it returns the error, with kernel, block and
// threads. Errors are a barrier or a wave operation that some threads do not reach, writes beyond
// shared memory, an index beyond an array, and memory that is not the device's. OPWIRE_EMU_ORDER
// sets the order of blocks and threads: "forward" (the default), "backward", or a number, which
// seeds a shuffle. Any thread; one launch at a time.
std::string Run(const Launch& launch);

}  // namespace opwire::gpu::emu

#endif  // OPWIRE_KERNELS_DEVICE_EMU_GRID_H_

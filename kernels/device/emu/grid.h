// Runs a launch of an emulated kernel: block after block, the threads of a block as fibers that
// change where they wait for each other.
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

// Empty: it ran. Else what went wrong, with kernel, block and threads: a barrier or a wave
// operation that some threads do not reach, writes beyond shared memory, an index beyond an array,
// memory that is not the device's. Blocks and threads go in the order that OPWIRE_EMU_ORDER says:
// "forward" (the default), "backward", or a number, which seeds a shuffle. Any thread; one launch
// at a time.
std::string Run(const Launch& launch);

}  // namespace opwire::gpu::emu

#endif  // OPWIRE_KERNELS_DEVICE_EMU_GRID_H_

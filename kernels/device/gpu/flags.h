// The memory to which GPU kernels report, for both compilers: fundamental types only.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_
#define OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_

namespace opw {

// Reports of a device's kernels: values out of their domain, and raised flags. It is stored in the
// device's memory.
struct FlagBlock {
  unsigned long long
      first;        // the least of (step << 48 | position << 8 | operand); all bits set: none
  unsigned raised;  // OPW_FLAG_*
  unsigned reserved;
  unsigned* changed;  // in the host's memory: not 0 once one of the two has changed
};

// Parameters with which a launch reports.
struct Reporter {
  FlagBlock* block;
  unsigned long long step;  // of the run
};

// A matrix as described to the copy engine of sm_90; the driver makes it (GpuDevice::MapTiles).
struct alignas(64) TileMap {
  unsigned char bytes[128];
};

}  // namespace opw

#endif  // OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_

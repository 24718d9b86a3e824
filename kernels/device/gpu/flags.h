// Where GPU kernels report what they met, for both compilers: fundamental types only.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_
#define OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_

namespace opw {

// Where the kernels of a device report values out of their domain and what they raise. It lies in
// the device's memory.
struct FlagBlock {
  unsigned long long
      first;        // the least of (step << 48 | position << 8 | operand); all bits set: none
  unsigned raised;  // OPW_FLAG_*
  unsigned reserved;
  unsigned* changed;  // in the host's memory: not 0 once one of the two has changed
};

// A launch's way to it.
struct Reporter {
  FlagBlock* block;
  unsigned long long step;  // of the run
};

// A matrix as the copy engine of sm_90 sees it, which the driver makes (GpuDevice::MapTiles).
struct alignas(64) TileMap {
  unsigned char bytes[128];
};

}  // namespace opw

#endif  // OPWIRE_KERNELS_DEVICE_GPU_FLAGS_H_

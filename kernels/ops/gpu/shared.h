// Data that the host writes and GPU code reads: the same text for both compilers, so it has
// fundamental types only.
#ifndef OPWIRE_KERNELS_OPS_GPU_SHARED_H_
#define OPWIRE_KERNELS_OPS_GPU_SHARED_H_

#include "kernels/device/gpu/flags.h"

namespace opw {

// Division of a number below 2^31 by one: n / d = (mulhi(n, magic) + n) >> shift. From Granlund and
// Montgomery (1994), as 32-bit arithmetic allows it.
struct Divisor {
  unsigned divisor, magic, shift, reserved;
};

// The axes that a kernel walks, the last one innermost, of `kTensors` tensors; strides in elements.
// Those in front that are not needed have extent 1 and strides 0.
template <int kTensors, int kRank>
struct Axes {
  long long extents[kRank];
  Divisor divisors[kRank];  // by the extents, if all positions are below 2^31
  long long strides[kTensors][kRank];
};

}  // namespace opw

#endif  // OPWIRE_KERNELS_OPS_GPU_SHARED_H_

// What the CPU's kernels of rows and of columns share: the reductions of this processor, and the
// sizes of their buffers.
#ifndef OPWIRE_KERNELS_FUSED_REDUCE_KERNEL_H_
#define OPWIRE_KERNELS_FUSED_REDUCE_KERNEL_H_

#include <cstdint>

#include "kernels/fused/row_program.h"
#include "kernels/ops/reduce/cpu_loops.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

inline constexpr int64_t kArenaBytes = int64_t{192} << 10;  // buffers of a tile

inline int64_t Padded(int64_t bytes) {
  return (bytes + 63) / 64 * 64 + 64;
}  // not a power of two apart, so that they share no lines of a cache

// REQUIRES: RowKernel::Available().
inline const ops::reduce::ReduceLoops& LoopsOf(ReduceKind kind) {
  static const ops::reduce::ReduceLoops* const all =
      Isa::Detect().avx512 ? ops::reduce::ReductionsAvx512() : ops::reduce::ReductionsAvx2();
  return all[static_cast<int>(kind)];
}

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_REDUCE_KERNEL_H_

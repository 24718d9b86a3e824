// Loops over whole contiguous tensors by a call's threads: casts and the like, for ops that work on
// copies. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_MAP_ALL_H_
#define OPWIRE_KERNELS_OPS_MAP_ALL_H_

#include <omp.h>

#include "kernels/ops/call.h"
#include "kernels/ops/elementwise/cpu_loops.h"

namespace opwire::ops {

// Of parts of a workspace.
inline int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The threads that a call which is prepared will run with.
inline int ThreadsOf(const opw_call* c) {
  return c->runtime != nullptr ? c->runtime->threads : omp_get_max_threads();
}

// A loop over n elements.
inline void MapAll(const opw_call* c, elementwise::ElementwiseLoop loop, void* to, uint8_t to_type,
                   const void* from, uint8_t from_type, int64_t n) {
  constexpr int64_t kGrain = 16384;
  const int64_t to_bytes = DTypeBytes(static_cast<DType>(to_type)),
                from_bytes = DTypeBytes(static_cast<DType>(from_type));
  ParallelFor(c, n, kGrain, [&](int64_t begin, int64_t end) {
    const void* const in[] = {static_cast<const char*>(from) + begin * from_bytes};
    loop(static_cast<char*>(to) + begin * to_bytes, in, end - begin, 0);
  });
}
// REQUIRES: WidestCasts().
inline void CastAll(const opw_call* c, void* to, uint8_t to_type, const void* from,
                    uint8_t from_type, int64_t n) {
  MapAll(c, elementwise::WidestCasts()->loops[from_type][to_type], to, to_type, from, from_type, n);
}

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_MAP_ALL_H_

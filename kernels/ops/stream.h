// Stores past the caches, for results that would only push other things out of them.
#ifndef OPWIRE_KERNELS_OPS_STREAM_H_
#define OPWIRE_KERNELS_OPS_STREAM_H_

#include <cstdint>

namespace opwire::ops {

// From this size on a result is stored past the caches: more than a core's share of the last one.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

// As memcpy; the stores may be seen by other threads in any order until the range's end is joined.
void StreamCopy(void* to, const void* from, int64_t bytes);

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_STREAM_H_

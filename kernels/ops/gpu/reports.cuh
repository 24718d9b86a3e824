// Functions by which GPU code, ours and a user's, reads values that a client has chosen, and
// reports to the executor those out of their domain.
#include <opwire/gpu.h>

#include "kernels/device/gpu/flags.h"

namespace opw {

// The value at flat position `position` of operand `operand` is out of its domain.
OPW_DEVICE void ReportOutOfRange(const Reporter& r, int operand, i64 position) {
  const u64 key = r.step << 48 | static_cast<u64>(position) << 8 | static_cast<u64>(operand);
  if (atomicMin(&r.block->first, key) > key) *static_cast<volatile unsigned*>(r.block->changed) = 1;
}
OPW_DEVICE void Raise(const Reporter& r, u32 flags) {
  if (flags != 0 && (atomicOr(&r.block->raised, flags) & flags) != flags)
    *static_cast<volatile unsigned*>(r.block->changed) = 1;
}

// An index as its operand's type has it (i32 or i64), loaded once.
template <typename I>
OPW_DEVICE i64 LoadIndex(const I* p) {
  return static_cast<i64>(*static_cast<const volatile I*>(p));
}
// `value` in [-extent, extent) as a position in [0, extent); -1 for all others.
OPW_DEVICE i64 WrapIndex(i64 value, i64 extent) {
  const u64 wrapped = static_cast<u64>(value) + (value < 0 ? static_cast<u64>(extent) : 0);
  return wrapped < static_cast<u64>(extent) ? static_cast<i64>(wrapped) : -1;
}

}  // namespace opw

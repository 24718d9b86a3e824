// Overflow-checked arithmetic on sizes.
#ifndef OPWIRE_IR_BASE_CHECKED_H_
#define OPWIRE_IR_BASE_CHECKED_H_

#include <cstdint>
#include <optional>
#include <span>

namespace opwire {

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// The product of non-negative extents; 1 for rank 0. An extent of 0 gives 0 even where the others
// overflow.
inline std::optional<int64_t> CheckedElements(std::span<const int64_t> shape) {
  int64_t n = 1;
  bool overflow = false;
  for (int64_t d : shape) {
    if (d == 0) return 0;
    overflow |= __builtin_mul_overflow(n, d, &n);
  }
  if (overflow) return std::nullopt;
  return n;
}

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_CHECKED_H_

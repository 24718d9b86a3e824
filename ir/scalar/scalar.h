// Element types as C++ types, and conversions between them one value at a time: what the reference
// kernels are made of. Not for files built for an instruction set: what is inline here must mean
// the same code in every object.
#ifndef OPWIRE_IR_SCALAR_SCALAR_H_
#define OPWIRE_IR_SCALAR_SCALAR_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ir/base/dtype.h"
#include "ir/base/float.h"

namespace opwire::ops {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};
struct Bool {
  uint8_t bits;
};

// The type that a value computes in, and how it is read from and rounded to storage.
template <typename T>
struct Scalar {  // f64, f32 and the integers
  using Compute = T;
  static T Load(T v) { return v; }
};
template <>
struct Scalar<F16> {
  using Compute = float;
  static float Load(F16 v) { return F16ToFloat(v.bits); }
  static F16 Round(float f, bool) { return {FloatToF16(f)}; }
};
template <>
struct Scalar<BF16> {
  using Compute = float;
  static float Load(BF16 v) { return BF16ToFloat(v.bits); }
  static BF16 Round(float f, bool) { return {FloatToBF16(f)}; }
};
template <>
struct Scalar<F8E4M3> {
  using Compute = float;
  static float Load(F8E4M3 v) { return F8E4M3ToFloat(v.bits); }
  static F8E4M3 Round(float f, bool saturate) { return {FloatToF8E4M3(f, saturate)}; }
};
template <>
struct Scalar<F8E5M2> {
  using Compute = float;
  static float Load(F8E5M2 v) { return F8E5M2ToFloat(v.bits); }
  static F8E5M2 Round(float f, bool saturate) { return {FloatToF8E5M2(f, saturate)}; }
};
template <>
struct Scalar<Bool> {
  using Compute = bool;
  static bool Load(Bool v) { return v.bits != 0; }
};

template <typename T>
using ComputeOf = typename Scalar<T>::Compute;

template <typename T>
ComputeOf<T> Load(const void* base, int64_t index) {
  return Scalar<T>::Load(static_cast<const T*>(base)[index]);
}

// An f32 from which rounding once more to any narrower type gives what rounding `v` once would:
// truncated, its last bit set where that lost something.
inline float RoundToOdd(double v) {
  const float f = static_cast<float>(v);
  if (static_cast<double>(f) == v || f != f) return f;
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(v)) --bits;
  return std::bit_cast<float>(bits | 1u);
}
template <typename I>
requires std::is_integral_v<I>
float RoundToOdd(I v) {
  // 53 bits are exact in f64; what lies below them is one sticky bit.
  const bool negative = v < I{0};
  uint64_t m = negative ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  if (m >> 53 != 0) m = (m & ~uint64_t{0x7ff}) | ((m & 0x7ff) != 0 ? 0x800 : 0);
  const double d = static_cast<double>(m);
  return RoundToOdd(negative ? -d : d);
}
inline float RoundToOdd(float v) { return v; }

// The value as an integer type: floats saturate and NaN gives 0, wider integers wrap.
template <typename I, typename From>
I ToInteger(From v) {
  if constexpr (std::is_floating_point_v<From>) {
    if (v != v) return 0;
    // 2^(bits of the value): exact in From.
    const From beyond = std::ldexp(From{1}, std::numeric_limits<I>::digits);
    if (v >= beyond) return std::numeric_limits<I>::max();
    if (v <= static_cast<From>(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    return static_cast<I>(v);
  } else {
    return static_cast<I>(v);
  }
}

// A value of a computing type as a stored element, rounded once.
template <typename T, typename From>
T Convert(From v, bool saturate = false) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<uint8_t>(v != From{0})};
  } else if constexpr (std::is_integral_v<T>) {
    return ToInteger<T>(v);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(v);
  } else {
    return Scalar<T>::Round(RoundToOdd(v), saturate);
  }
}

template <typename T, typename From>
void Store(void* base, int64_t index, From v) {
  static_cast<T*>(base)[index] = Convert<T>(v);
}

// Sums and products of a computing type; integers wrap.
template <typename C>
C Plus(C a, C b) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <typename C>
C Times(C a, C b) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls f(TypeTag<T>{}) for the type's C++ form. REQUIRES: IsValid(t).
template <typename F>
decltype(auto) VisitType(DType t, F&& f) {
  switch (t) {
    case DType::kF64:
      return f(TypeTag<double>{});
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kF16:
      return f(TypeTag<F16>{});
    case DType::kBF16:
      return f(TypeTag<BF16>{});
    case DType::kF8E4M3:
      return f(TypeTag<F8E4M3>{});
    case DType::kF8E5M2:
      return f(TypeTag<F8E5M2>{});
    case DType::kI64:
      return f(TypeTag<int64_t>{});
    case DType::kI32:
      return f(TypeTag<int32_t>{});
    case DType::kI16:
      return f(TypeTag<int16_t>{});
    case DType::kI8:
      return f(TypeTag<int8_t>{});
    case DType::kU64:
      return f(TypeTag<uint64_t>{});
    case DType::kU32:
      return f(TypeTag<uint32_t>{});
    case DType::kU16:
      return f(TypeTag<uint16_t>{});
    case DType::kU8:
      return f(TypeTag<uint8_t>{});
    default:
      return f(TypeTag<Bool>{});
  }
}

// Calls f(TypeTag<T>{}) with the unsigned integer of the type's size: for ops that move elements.
template <typename F>
decltype(auto) VisitBits(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    default:
      return f(TypeTag<uint64_t>{});
  }
}

}  // namespace opwire::ops

#endif  // OPWIRE_IR_SCALAR_SCALAR_H_

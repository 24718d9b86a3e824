// Conversions of one element, and the 8-bit floats by way of f16. The includer defines OPWIRE_ISA.
#include <stdint.h>

#include <type_traits>

namespace opwire::ops::OPWIRE_ISA {
namespace {

struct Assign {
  template <typename To, typename From>
  static To Apply(From v) {
    return static_cast<To>(v);
  }
};
struct IsNonzero {
  template <typename To, typename From>
  static To Apply(From v) {
    return static_cast<To>(v != From{0});
  }
};
// A float to an integer: saturates, and NaN gives 0.
struct Saturate {
  template <typename To, typename From>
  static To Apply(From v) {
    constexpr bool kSigned = std::is_signed_v<To>;
    constexpr To kMost =
        static_cast<To>(kSigned ? (uint64_t{1} << (sizeof(To) * 8 - 1)) - 1 : ~uint64_t{0});
    constexpr From kHalf =
        static_cast<From>(uint64_t{1} << (sizeof(To) * 8 - 1));  // half the span of To
    constexpr From kBeyond = kSigned ? kHalf : 2 * kHalf, kLeast = kSigned ? -kHalf : From{0};
    From inside = v > kLeast ? v : kLeast;  // a NaN too
    inside = inside < kBeyond ? inside : kLeast;
    To r;
    if constexpr (sizeof(To) < 4) {
      r = static_cast<To>(static_cast<int32_t>(inside));
    } else {
      // The processors convert to signed integers: the upper half of the unsigned ones is moved
      // there and back.
      using Signed = std::make_signed_t<To>;
      const bool upper = !kSigned && inside >= kHalf;
      const Signed part = static_cast<Signed>(inside - (upper ? kHalf : From{0}));
      r = static_cast<To>(static_cast<std::make_unsigned_t<To>>(part) +
                          (upper ? std::make_unsigned_t<To>{1} << (sizeof(To) * 8 - 1) : 0));
    }
    r = v >= kBeyond ? kMost : r;
    return v == v ? r : To{0};
  }
};
// To f32, truncated, its last bit set where that lost something: rounding that to a narrower type
// is rounding once.
struct RoundToOdd {
  template <typename To, typename From>
  static float Apply(From v) {
    double d;
    if constexpr (sizeof(From) == 8 && std::is_integral_v<From>) {
      // 53 bits are exact in f64; what lies below them becomes one sticky bit.
      const uint64_t sign = std::is_signed_v<From> && v < 0 ? ~uint64_t{0} : 0,
                     m = (static_cast<uint64_t>(v) ^ sign) - sign;
      const uint64_t sticky = (m & ~uint64_t{0x7ff}) | ((m & 0x7ff) != 0 ? 0x800 : 0);
      d = static_cast<double>(m >> 53 != 0 ? sticky : m);
      d = sign != 0 ? -d : d;
    } else {
      d = static_cast<double>(v);
    }
    const float f = static_cast<float>(d);
    const double back = static_cast<double>(f);
    const uint32_t bits = __builtin_bit_cast(uint32_t, f),
                   beyond = __builtin_fabs(back) > __builtin_fabs(d);
    return back == d || d != d ? f : __builtin_bit_cast(float, (bits - beyond) | 1u);
  }
};

// The 8-bit floats' tags. HalfBits takes elements, or vectors of them, in 16 bits to f16's bits;
// f32 is kScale times that. e5m2 is the upper byte of f16; e4m3 has f16's fields in other places
// and is 2^8 larger.
struct E4M3 {
  uint8_t bits;
  static constexpr float kScale = 256;
  template <typename B>
  static B HalfBits(B b) {
    const B nan = (b & 0) | 0x7e00;
    return (b & 0x7f) == 0x7f ? nan : B((b & 0x80) << 8 | (b & 0x7f) << 7);
  }
};
struct E5M2 {
  uint8_t bits;
  static constexpr float kScale = 1;
  template <typename B>
  static B HalfBits(B b) {
    return B(b << 8);
  }
};

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

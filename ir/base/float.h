// Conversions between f32 and the 16- and 8-bit floating types, bit by bit and portable: the
// meaning that every device must match. Rounding is to nearest, ties to even.
#ifndef OPWIRE_IR_BASE_FLOAT_H_
#define OPWIRE_IR_BASE_FLOAT_H_

#include <bit>
#include <cstdint>

namespace opwire {

inline float BF16ToFloat(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

// NaN stays NaN (quiet, sign kept); overflow goes to infinity.
inline uint16_t FloatToBF16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float F16ToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  // Subnormal: magnitude * 2^-24, exact in f32.
  const float v = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(v));
}

inline uint16_t FloatToF16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // at least 65520: infinity
  if (a < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the subnormal's last bit with the f32 mantissa's, so the adder
    // rounds.
    const float magic = std::bit_cast<float>(0x3f000000u);
    const uint32_t r = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + magic) - 0x3f000000u;
    return static_cast<uint16_t>(sign | r);
  }
  a += 0xc8000fffu + ((a >> 13) & 1u);  // rebias the exponent by 15 - 127 and round
  return static_cast<uint16_t>(sign | (a >> 13));
}

// f8e4m3fn: bias 7, S.1111.111 is NaN, no infinities; f8e5m2: bias 15, IEEE-like.
float F8E4M3ToFloat(uint8_t b);
float F8E5M2ToFloat(uint8_t b);
// With `saturate` a finite or infinite value beyond the range becomes the largest finite one;
// otherwise NaN for e4m3 and infinity for e5m2. NaN stays NaN.
uint8_t FloatToF8E4M3(float f, bool saturate = false);
uint8_t FloatToF8E5M2(float f, bool saturate = false);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_FLOAT_H_

// The 8-bit floating types.
#include "ir/base/float.h"

#include <cmath>

namespace opwire {
namespace {

// Rounds |f| to a format with `mantissa` stored bits and exponent bias `bias`; returns exponent and
// mantissa bits, which may lie beyond the format's largest finite code.
uint32_t RoundMagnitude(float f, int mantissa, int bias) {
  const uint32_t a = std::bit_cast<uint32_t>(f) & 0x7fffffffu;
  const float smallest_normal = std::ldexp(1.0f, 1 - bias);
  if (std::bit_cast<float>(a) < smallest_normal) {
    return static_cast<uint32_t>(
        std::nearbyint(std::ldexp(std::bit_cast<float>(a), mantissa + bias - 1)));
  }
  const int drop = 23 - mantissa;
  const uint32_t rounded = a + ((1u << (drop - 1)) - 1) + ((a >> drop) & 1u);
  return (rounded >> drop) - (static_cast<uint32_t>(127 - bias) << mantissa);
}

float ExpandMagnitude(uint32_t code, int mantissa, int bias) {
  const uint32_t exponent = code >> mantissa;
  const uint32_t fraction = code & ((1u << mantissa) - 1);
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), 1 - bias - mantissa);
  return std::ldexp(static_cast<float>(fraction | (1u << mantissa)),
                    static_cast<int>(exponent) - bias - mantissa);
}

}  // namespace

float F8E4M3ToFloat(uint8_t b) {
  const uint32_t code = b & 0x7fu;
  const float v = code == 0x7fu ? std::nanf("") : ExpandMagnitude(code, 3, 7);
  return (b & 0x80u) ? -v : v;
}

float F8E5M2ToFloat(uint8_t b) {
  const uint32_t code = b & 0x7fu;
  float v;
  if (code > 0x7cu)
    v = std::nanf("");
  else if (code == 0x7cu)
    v = HUGE_VALF;
  else
    v = ExpandMagnitude(code, 2, 15);
  return (b & 0x80u) ? -v : v;
}

uint8_t FloatToF8E4M3(float f, bool saturate) {
  const uint8_t sign = std::signbit(f) ? 0x80u : 0u;
  if (std::isnan(f)) return sign | 0x7fu;
  const uint32_t code = std::isinf(f) ? 0x7fu : RoundMagnitude(f, 3, 7);
  if (code >= 0x7fu) return sign | (saturate ? 0x7eu : 0x7fu);
  return sign | static_cast<uint8_t>(code);
}

uint8_t FloatToF8E5M2(float f, bool saturate) {
  const uint8_t sign = std::signbit(f) ? 0x80u : 0u;
  if (std::isnan(f)) return sign | 0x7fu;
  const uint32_t code = std::isinf(f) ? 0x7cu : RoundMagnitude(f, 2, 15);
  if (code >= 0x7cu) return sign | (saturate ? 0x7bu : 0x7cu);
  return sign | static_cast<uint8_t>(code);
}

}  // namespace opwire

// The 8-bit floating types.
#include "ir/base/float.h"

#include <cmath>

namespace opwire {
namespace {

// 2^exponent, of normal numbers.
constexpr float Power(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

// Rounds |f| to a format with kMantissa stored bits and the exponent bias kBias. Returns exponent
// and mantissa bits, which may lie beyond the format's largest finite code.
template <int kMantissa, int kBias>
uint32_t RoundMagnitude(float f) {
  const uint32_t a = std::bit_cast<uint32_t>(f) & 0x7fffffffu;
  if (std::bit_cast<float>(a) < Power(1 - kBias)) {
    // Subnormal: the sum's last bit is worth one of the format's, so that the addition rounds.
    const float sum = std::bit_cast<float>(a) * Power(kMantissa + kBias - 1) + Power(23);
    return std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(Power(23));
  }
  constexpr int kDrop = 23 - kMantissa;
  const uint32_t rounded = a + ((1u << (kDrop - 1)) - 1) + ((a >> kDrop) & 1u);
  return (rounded >> kDrop) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
}

template <int kMantissa, int kBias>
float ExpandMagnitude(uint32_t code) {
  if (code < (1u << kMantissa)) return static_cast<float>(code) * Power(1 - kBias - kMantissa);
  return std::bit_cast<float>((code << (23 - kMantissa)) +
                              (static_cast<uint32_t>(127 - kBias) << 23));
}

}  // namespace

float F8E4M3ToFloat(uint8_t b) {
  const uint32_t code = b & 0x7fu;
  const float v = code == 0x7fu ? std::nanf("") : ExpandMagnitude<3, 7>(code);
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
    v = ExpandMagnitude<2, 15>(code);
  return (b & 0x80u) ? -v : v;
}

uint8_t FloatToF8E4M3(float f, bool saturate) {
  const uint8_t sign = std::signbit(f) ? 0x80u : 0u;
  if (std::isnan(f)) return sign | 0x7fu;
  const uint32_t code = std::isinf(f) ? 0x7fu : RoundMagnitude<3, 7>(f);
  if (code >= 0x7fu) return sign | (saturate ? 0x7eu : 0x7fu);
  return sign | static_cast<uint8_t>(code);
}

uint8_t FloatToF8E5M2(float f, bool saturate) {
  const uint8_t sign = std::signbit(f) ? 0x80u : 0u;
  if (std::isnan(f)) return sign | 0x7fu;
  const uint32_t code = std::isinf(f) ? 0x7cu : RoundMagnitude<2, 15>(f);
  if (code >= 0x7cu) return sign | (saturate ? 0x7bu : 0x7cu);
  return sign | static_cast<uint8_t>(code);
}

}  // namespace opwire

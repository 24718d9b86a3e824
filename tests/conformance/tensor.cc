// Floating formats by their parameters: significand bits, smallest exponent, largest value. Powers
// of two and exponents are taken from the bits of a Real: libm's functions took a fifth of the
// suite.
#include "tests/conformance/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace opwire::conformance {
namespace {

struct Format {
  int precision;     // significand bits, with the hidden one
  int min_exponent;  // of the smallest normal number
  int max_exponent;  // of the largest
  bool infinities;
};

Format FormatOf(DType t) {
  switch (t) {
    case DType::kF64:
      return {53, -1022, 1023, true};
    case DType::kF32:
      return {24, -126, 127, true};
    case DType::kF16:
      return {11, -14, 15, true};
    case DType::kBF16:
      return {8, -126, 127, true};
    case DType::kF8E5M2:
      return {3, -14, 15, true};
    default:
      return {4, -6, 8, false};  // f8e4m3
  }
}

// x87's: 64 bits with the hidden one, then the biased exponent and the sign.
static_assert(std::numeric_limits<Real>::digits == 64);
constexpr int kBias = 16383;

// 2^exponent, for a normal result.
Real PowerOf2(int exponent) {
  const struct {
    uint64_t significand;
    uint16_t exponent;
  } bits = {uint64_t{1} << 63, static_cast<uint16_t>(exponent + kBias)};
  Real out = 0;
  std::memcpy(&out, &bits, 10);
  return out;
}

// As std::ilogb of a normal number; those below have the smallest exponent, infinity the largest.
int ExponentOf(Real value) {
  uint16_t bits;
  std::memcpy(&bits, reinterpret_cast<const char*>(&value) + 8, sizeof bits);
  return (bits & 0x7fff) - kBias;
}

}  // namespace

int64_t Count(const Extents& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

bool IsFloat(DType t) { return (kFloats | kFloat8s).Has(t); }
bool IsSigned(DType t) { return kSigned.Has(t); }
int BitsOf(DType t) { return static_cast<int>(DTypeBytes(t)) * 8; }
DType ComputingType(DType t) { return IsFloat(t) && t != DType::kF64 ? DType::kF32 : t; }

Real Largest(DType t) {
  const Format f = FormatOf(t);
  // e4m3 gives its topmost significand to NaN.
  return (2 - PowerOf2((f.infinities ? 1 : 2) - f.precision)) * PowerOf2(f.max_exponent);
}

Real Ulp(DType t, Real value) {
  const Format f = FormatOf(t);
  int exponent = f.min_exponent;
  if (std::isfinite(value)) exponent = std::clamp(ExponentOf(value), exponent, f.max_exponent);
  return PowerOf2(exponent - f.precision + 1);
}

// The compiler's conversions of these are rounded as the processor's, and take a tenth of the time.
Real Rounded(DType t, Real value) {
  if (t == DType::kF32) return static_cast<float>(value);
  if (t == DType::kF64) return static_cast<double>(value);
  if (!IsFloat(t) || std::isnan(value) || (std::isinf(value) && FormatOf(t).infinities))
    return value;
  if (std::isinf(value)) return std::numeric_limits<Real>::quiet_NaN();
  // The neighbours of `far` are an ulp of `t` away, so the sum is rounded to that.
  const Real far = 3 * PowerOf2(62) * Ulp(t, value);
  const Real rounded = (value + far) - far;
  if (std::fabs(rounded) <= Largest(t))
    return rounded == 0 ? std::copysign(Real{0}, value) : rounded;
  if (!FormatOf(t).infinities) return std::numeric_limits<Real>::quiet_NaN();
  return std::copysign(std::numeric_limits<Real>::infinity(), value);
}

namespace {

// Of a float by its definition.
Real DecodeFloat(DType t, uint64_t bits) {
  const Format f = FormatOf(t);
  const int width = BitsOf(t), fraction_bits = f.precision - 1;
  const bool negative = (bits >> (width - 1)) != 0;
  const uint64_t fraction = bits & ((uint64_t{1} << fraction_bits) - 1);
  const int exponent =
      static_cast<int>(bits >> fraction_bits & ((uint64_t{1} << (width - 1 - fraction_bits)) - 1));
  const int top = (1 << (width - 1 - fraction_bits)) - 1;
  Real v;
  if (exponent == top && (f.infinities || fraction == (uint64_t{1} << fraction_bits) - 1)) {
    v = f.infinities && fraction == 0 ? std::numeric_limits<Real>::infinity()
                                      : std::numeric_limits<Real>::quiet_NaN();
  } else {
    const Real significand =
        static_cast<Real>(fraction + (exponent == 0 ? 0 : uint64_t{1} << fraction_bits));
    v = significand * PowerOf2(std::max(exponent, 1) - 1 + f.min_exponent - fraction_bits);
  }
  return negative ? -v : v;
}

// All numbers of a narrow type.
template <DType type>
const std::vector<float>& NumbersOf() {
  static const std::vector<float> numbers = [] {
    std::vector<float> all(size_t{1} << BitsOf(type));
    for (size_t bits = 0; bits < all.size(); ++bits)
      all[bits] = static_cast<float>(DecodeFloat(type, bits));
    return all;
  }();
  return numbers;
}

}  // namespace

Real Decode(DType t, const void* element) {
  if (t == DType::kF32) {
    float v;
    std::memcpy(&v, element, sizeof v);
    return v;
  }
  if (t == DType::kF64) {
    double v;
    std::memcpy(&v, element, sizeof v);
    return v;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, element, DTypeBytes(t));
  const int width = BitsOf(t);
  if (t == DType::kBool) return bits != 0;
  if (!IsFloat(t)) {
    if (IsSigned(t) && (bits >> (width - 1)) != 0)
      return -static_cast<Real>(~(bits | (width == 64 ? 0 : ~uint64_t{0} << width))) - 1;
    return static_cast<Real>(bits);
  }
  switch (t) {
    case DType::kF16:
      return NumbersOf<DType::kF16>()[bits];
    case DType::kBF16:
      return NumbersOf<DType::kBF16>()[bits];
    case DType::kF8E4M3:
      return NumbersOf<DType::kF8E4M3>()[bits];
    default:
      return NumbersOf<DType::kF8E5M2>()[bits];
  }
}

void Encode(DType t, Real value, void* element) {
  if (t == DType::kF32 && !std::isnan(value)) {
    const auto v = static_cast<float>(value);
    std::memcpy(element, &v, sizeof v);
    return;
  }
  if (t == DType::kF64 && !std::isnan(value)) {
    const auto v = static_cast<double>(value);
    std::memcpy(element, &v, sizeof v);
    return;
  }
  const int width = BitsOf(t);
  uint64_t bits;
  if (t == DType::kBool) {
    bits = value != 0;
  } else if (!IsFloat(t)) {
    bits = value < 0 ? uint64_t{0} - static_cast<uint64_t>(-value) : static_cast<uint64_t>(value);
  } else {
    const Format f = FormatOf(t);
    const int fraction_bits = f.precision - 1;
    const uint64_t hidden = uint64_t{1} << fraction_bits,
                   top = (uint64_t{1} << (width - 1 - fraction_bits)) - 1;
    const Real v = Rounded(t, value);
    if (std::isnan(v)) {
      bits = top << fraction_bits | (f.infinities ? hidden >> 1 : hidden - 1);
    } else if (std::isinf(v)) {
      bits = top << fraction_bits;
    } else {
      const uint64_t significand = static_cast<uint64_t>(std::fabs(v) / Ulp(t, v));
      const int exponent = significand < hidden ? 0 : ExponentOf(v) - f.min_exponent + 1;
      bits = static_cast<uint64_t>(exponent) << fraction_bits | (significand & (hidden - 1));
    }
    if (std::signbit(v)) bits |= uint64_t{1} << (width - 1);
  }
  std::memcpy(element, &bits, DTypeBytes(t));
}

}  // namespace opwire::conformance

// Basic declarations of all our GPU code, in addition to <opwire/gpu.h>: element types,
// conversions, positions and reports.
#include <opwire/gpu.h>

#include "kernels/ops/gpu/reports.cuh"
#include "kernels/ops/gpu/shared.h"

namespace opw {

using f32 = float;
using f64 = double;
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct boolean {
  u8 bits;
};

inline constexpr u32 kRaiseDivide = 1;  // OPW_FLAG_DIVIDE

template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;

// Distance in bytes from the boundary before it.
template <int kBoundary = 16, typename T>
OPW_DEVICE int Phase(const T* p) {
  return static_cast<int>(reinterpret_cast<u64>(p) & (kBoundary - 1));
}

// ---- Traits

template <typename T>
inline constexpr bool kIsFloat = kSame<T, float> || kSame<T, double>;
template <typename T>
inline constexpr bool kIsNarrow =
    kSame<T, f16> || kSame<T, bf16> || kSame<T, f8e4m3> || kSame<T, f8e5m2>;
template <typename T>
inline constexpr bool kIsSigned = kSame<T, i8> || kSame<T, i16> || kSame<T, i32> || kSame<T, i64>;

// The type that elements of T compute in, whether integers wrap, and the type with their bits.
template <typename T>
struct Traits {
  using Compute = T;
};
template <>
struct Traits<f16> {
  using Compute = float;
};
template <>
struct Traits<bf16> {
  using Compute = float;
};
template <>
struct Traits<f8e4m3> {
  using Compute = float;
};
template <>
struct Traits<f8e5m2> {
  using Compute = float;
};
template <>
struct Traits<boolean> {
  using Compute = bool;
};
template <typename T>
using ComputeOf = typename Traits<T>::Compute;

template <int kBytes>
struct BitsOfSize;
template <>
struct BitsOfSize<1> {
  using Type = u8;
};
template <>
struct BitsOfSize<2> {
  using Type = u16;
};
template <>
struct BitsOfSize<4> {
  using Type = u32;
};
template <>
struct BitsOfSize<8> {
  using Type = u64;
};
template <typename T>
using RawOf = typename BitsOfSize<sizeof(T)>::Type;

OPW_DEVICE u64 BitsOf(double v) { return static_cast<u64>(__double_as_longlong(v)); }
OPW_DEVICE double DoubleOf(u64 bits) { return __longlong_as_double(static_cast<i64>(bits)); }

// ---- Elements to their computing type: exact

OPW_DEVICE float ToFloat(f8e5m2 v) { return ToFloat(f16{static_cast<u16>(v.bits << 8)}); }
OPW_DEVICE float ToFloat(f8e4m3 v) {
  const u32 magnitude = v.bits & 0x7f;
  const u32 sign = static_cast<u32>(v.bits & 0x80) << 24;
  if (magnitude == 0x7f) return FloatOf(sign | 0x7fc00000u);
  // As a half with a smaller exponent bias: too small by 2^8, subnormals included.
  const float half = ToFloat(f16{static_cast<u16>(magnitude << 7)});
  return FloatOf(BitsOf(half * 256.0f) | sign);
}
template <typename T>
OPW_DEVICE ComputeOf<T> Load(T v) {
  if constexpr (kIsNarrow<T>)
    return ToFloat(v);
  else if constexpr (kSame<T, boolean>)
    return v.bits != 0;
  else
    return v;
}

// ---- And back, rounded once: to nearest, ties to even

// Converts to an 8-bit float with kMantissa bits of mantissa. Its codes starting with kBeyond have
// no finite value.
template <int kMantissa, int kBias, u32 kBeyond>
OPW_DEVICE u8 ToEighth(float v, bool saturate) {
  constexpr int kDrop = 23 - kMantissa;
  const u32 bits = BitsOf(v), magnitude = bits & 0x7fffffffu, sign = bits >> 31 << 7;
  if (magnitude > 0x7f800000u) return static_cast<u8>(sign | 0x7f);
  // Below the normal numbers an addition aligns the last bit with f32's, so that the adder rounds.
  const float aligned = static_cast<float>(1 << (24 - kMantissa - kBias));
  const float normal = 2.0f / (1 << kBias);
  u32 code;
  if (FloatOf(magnitude) < normal)
    code = BitsOf(FloatOf(magnitude) + aligned) - BitsOf(aligned);
  else
    code = ((magnitude + ((1u << (kDrop - 1)) - 1) + ((magnitude >> kDrop) & 1u)) >> kDrop) -
           ((127u - kBias) << kMantissa);
  if (code >= kBeyond) code = saturate ? kBeyond - 1 : kBeyond;
  return static_cast<u8>(sign | code);
}
template <typename T>
OPW_DEVICE T Narrow(float v, bool saturate = false) {
  if constexpr (kSame<T, f16>)
    return ToF16(v);
  else if constexpr (kSame<T, bf16>)
    return ToBF16(v);
  else if constexpr (kSame<T, f8e4m3>)
    return {ToEighth<3, 7, 0x7f>(v, saturate)};
  else
    return {ToEighth<2, 15, 0x7c>(v, saturate)};
}

// Returns an f32 that, rounded again to a narrower float, equals `v` rounded once.
OPW_DEVICE float RoundToOdd(float v) { return v; }
OPW_DEVICE float RoundToOdd(double v) {
  const float f = __double2float_rz(v);
  if (static_cast<double>(f) == v || f != f) return f;
  return FloatOf(BitsOf(f) | 1u);
}
template <typename I>
OPW_DEVICE float RoundToOdd(I v) {
  const bool negative = v < I(0);
  u64 m = negative ? u64(0) - static_cast<u64>(v) : static_cast<u64>(v);
  if (m >> 53 != 0) m = (m & ~u64(0x7ff)) | ((m & 0x7ff) != 0 ? 0x800 : 0);
  const double d = static_cast<double>(m);
  return RoundToOdd(negative ? -d : d);
}

template <typename I>
struct Limits;
template <>
struct Limits<i8> {
  static constexpr i8 kMin = -128, kMax = 127;
  static constexpr int kBits = 7;
};
template <>
struct Limits<i16> {
  static constexpr i16 kMin = -32768, kMax = 32767;
  static constexpr int kBits = 15;
};
template <>
struct Limits<i32> {
  static constexpr i32 kMin = -2147483647 - 1, kMax = 2147483647;
  static constexpr int kBits = 31;
};
template <>
struct Limits<i64> {
  static constexpr i64 kMin = -9223372036854775807ll - 1, kMax = 9223372036854775807ll;
  static constexpr int kBits = 63;
};
template <>
struct Limits<u8> {
  static constexpr u8 kMin = 0, kMax = 255;
  static constexpr int kBits = 8;
};
template <>
struct Limits<u16> {
  static constexpr u16 kMin = 0, kMax = 65535;
  static constexpr int kBits = 16;
};
template <>
struct Limits<u32> {
  static constexpr u32 kMin = 0, kMax = 4294967295u;
  static constexpr int kBits = 32;
};
template <>
struct Limits<u64> {
  static constexpr u64 kMin = 0, kMax = 18446744073709551615ull;
  static constexpr int kBits = 64;
};

// Converts a value of a computing type to another: floats to integers saturate and NaN gives 0,
// wider integers wrap, to bool is != 0.
template <typename To, typename From>
OPW_DEVICE To CastTo(From v) {
  if constexpr (kSame<To, bool>) {
    return v != From(0);
  } else if constexpr (kIsFloat<From> && !kIsFloat<To>) {
    if (v != v) return 0;
    const From beyond = static_cast<From>(u64(1) << (Limits<To>::kBits - 1)) * 2;
    if (v >= beyond) return Limits<To>::kMax;
    if (v <= static_cast<From>(Limits<To>::kMin)) return Limits<To>::kMin;
    return static_cast<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

// A value of a computing type as an element, rounded once.
template <typename T, typename From>
OPW_DEVICE T Store(From v, bool saturate = false) {
  if constexpr (kSame<T, boolean>)
    return {static_cast<u8>(v != From(0))};
  else if constexpr (kIsNarrow<T>)
    return Narrow<T>(RoundToOdd(v), saturate);
  else
    return CastTo<T>(v);
}

// ---- Vectors of elements

template <typename T, int kItems>
struct alignas(sizeof(T) * kItems <= 16 ? sizeof(T) * kItems : 16) Vector {
  T v[kItems];
  OPW_DEVICE T Get(int k) const { return v[k]; }
};

// Whether the address is aligned for a vector access.
template <typename T, int kItems>
OPW_DEVICE bool Aligned(const T* p) {
  return (reinterpret_cast<u64>(p) & (alignof(Vector<T, kItems>) - 1)) == 0;
}
// REQUIRES: `p` is aligned for it.
template <typename T, int kItems>
OPW_DEVICE Vector<T, kItems> LoadVector(const T* p) {
  return *reinterpret_cast<const Vector<T, kItems>*>(p);
}
template <typename T, int kItems>
OPW_DEVICE void StoreVector(T* p, const Vector<T, kItems>& v) {
  *reinterpret_cast<Vector<T, kItems>*>(p) = v;
}
// Loads the first `n` of them; the others repeat element 0, which must exist.
template <typename T, int kItems>
OPW_DEVICE Vector<T, kItems> LoadSome(const T* p, i64 n) {
  Vector<T, kItems> out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) out.v[i] = p[i < n ? i : 0];
  return out;
}
template <typename T, int kItems>
OPW_DEVICE void StoreSome(T* p, const Vector<T, kItems>& v, i64 n) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i < n) p[i] = v.v[i];
  }
}
// Two floats as f16 or bf16, the first in the low half.
template <typename T>
OPW_DEVICE u32 RoundPair(float low, float high) {
  static_assert(kSame<T, bf16> || kSame<T, f16>);
  if constexpr (kSame<T, bf16>)
    return ToBF16Pair(low, high);
  else
    return ToF16Pair(low, high);
}
// Stores floats as f16 or bf16, rounded two at a time.
template <typename T, int kItems>
OPW_DEVICE void StoreRounded(T* p, const float (&v)[kItems]) {
  if constexpr (kItems % 2 == 0) {
    Vector<u32, kItems / 2> words;
#pragma unroll
    for (int i = 0; i < kItems / 2; ++i) words.v[i] = RoundPair<T>(v[2 * i], v[2 * i + 1]);
    StoreVector(reinterpret_cast<u32*>(p), words);
  } else {
#pragma unroll
    for (int i = 0; i < kItems; ++i) p[i] = Narrow<T>(v[i]);
  }
}
template <typename T, int kItems>
OPW_DEVICE void StoreSomeRounded(T* p, const float (&v)[kItems], i64 n) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i < n) p[i] = Narrow<T>(v[i]);
  }
}

// ---- Positions

OPW_DEVICE u32 Divide(u32 n, const Divisor& d) {
  return static_cast<u32>((static_cast<u64>(__umulhi(n, d.magic)) + n) >> d.shift);
}

// The offsets of a flat position in the axes' tensors. kWide: positions may be 2^31 and beyond.
template <bool kWide, int kTensors, int kRank>
OPW_DEVICE void OffsetsAt(const Axes<kTensors, kRank>& axes, i64 position,
                          i64 (&offsets)[kTensors]) {
#pragma unroll
  for (int t = 0; t < kTensors; ++t) offsets[t] = 0;
  u64 rest = static_cast<u64>(position);
#pragma unroll
  for (int a = kRank - 1; a >= 0; --a) {
    // The index is 0 along all axes that are left, including those that the kernel does not use.
    if (kRank > 4 && rest == 0) return;
    u64 quotient, index;
    if (a == 0) {
      quotient = 0;
      index = rest;
    } else if (kWide && rest >= 0x7fffffffull) {
      quotient = rest / static_cast<u64>(axes.extents[a]);
      index = rest - quotient * static_cast<u64>(axes.extents[a]);
    } else {
      // A divisor is the extent, or larger than the position.
      const u32 q = Divide(static_cast<u32>(rest), axes.divisors[a]);
      quotient = q;
      index = static_cast<u32>(rest) - q * axes.divisors[a].divisor;
    }
#pragma unroll
    for (int t = 0; t < kTensors; ++t) offsets[t] += static_cast<i64>(index) * axes.strides[t][a];
    rest = quotient;
  }
}

}  // namespace opw

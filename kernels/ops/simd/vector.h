// Vectors of one instruction set: 64 bytes with AVX-512, else 32. A vector computes in double,
// float or an integer type. The element types Half and BFloat16 are loaded as float, and rounded
// once when they are stored. Boolean is loaded as 0 or 1.
//
//   for (; i + Mem<Half>::kLanes <= n; i += Mem<Half>::kLanes) Mem<Half>::Store(y + i,
//       Exp(Mem<Half>::Load(x + i)));
#ifndef OPWIRE_KERNELS_OPS_SIMD_VECTOR_H_
#define OPWIRE_KERNELS_OPS_SIMD_VECTOR_H_

#include <stdint.h>

#include <type_traits>

#include "kernels/ops/isa_namespace.h"
#include "kernels/ops/simd/intrinsics.h"

namespace opwire::ops::OPWIRE_ISA {

#ifdef __AVX512F__
inline constexpr int kVectorBytes = 64;
#else
inline constexpr int kVectorBytes = 32;
#endif

template <typename E, int kBytes = kVectorBytes>
struct VectorOf {
  typedef E Type __attribute__((vector_size(kBytes)));
};
template <typename E>
using Vec = typename VectorOf<E>::Type;
// A vector with as many elements as a vector of W.
template <typename E, typename W>
using VecLike = typename VectorOf<E, kVectorBytes / static_cast<int>(sizeof(W)) *
                                         static_cast<int>(sizeof(E))>::Type;

template <int kBytes>
struct SignedOf;
template <>
struct SignedOf<1> {
  using Type = int8_t;
};
template <>
struct SignedOf<2> {
  using Type = int16_t;
};
template <>
struct SignedOf<4> {
  using Type = int32_t;
};
template <>
struct SignedOf<8> {
  using Type = int64_t;
};
// The result of comparing vectors of E: all bits of a lane are set, or none.
template <typename E>
using Mask = Vec<typename SignedOf<sizeof(E)>::Type>;

template <typename V>
using LaneOf = std::remove_cvref_t<decltype(V{}[0])>;

// e - 0 keeps the sign of a zero.
template <typename E>
inline Vec<E> Splat(E e) {
  return e - Vec<E>{};
}

template <typename To, typename From>
inline To BitCast(From v) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, v);
}

template <typename V>
inline V LoadBytes(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <typename V>
inline void StoreBytes(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

// As __builtin_convertvector, which compilers apply element by element if sizes differ by more than
// a factor of two. Integers are converted in several steps, and those below 32 bits become floats
// through int32.
template <typename To, typename V>
inline To ConvertVector(V v) {
  using From = LaneOf<V>;
  constexpr int kLanes = sizeof(V) / sizeof(From), kFrom = sizeof(From), kTo = sizeof(LaneOf<To>);
  static_assert(sizeof(To) == kLanes * kTo);
  if constexpr (std::is_same_v<To, V>) {
    return v;
  } else if constexpr (std::is_integral_v<From> && std::is_floating_point_v<LaneOf<To>> &&
                       kFrom < 4) {
    return ConvertVector<To>(ConvertVector<typename VectorOf<int32_t, kLanes * 4>::Type>(v));
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<LaneOf<To>> &&
                       (kTo > 2 * kFrom || kFrom > 2 * kTo)) {
    using Signed = typename SignedOf<(kTo > kFrom ? 2 * kFrom : kFrom / 2)>::Type;
    using Next = std::conditional_t<std::is_signed_v<From>, Signed, std::make_unsigned_t<Signed>>;
    return ConvertVector<To>(__builtin_convertvector(
        v, typename VectorOf<Next, kLanes* static_cast<int>(sizeof(Next))>::Type));
  } else {
    return __builtin_convertvector(v, To);
  }
}

// The first n elements of `V`, zeros after them; accesses no memory beyond them.
template <typename E, typename V>
inline V LoadSome(const void* p, int64_t n) {
#ifdef __AVX512F__
  const uint64_t mask =
      (uint64_t{1} << n) - 1;  // n is less than the number of elements, so than 64
  if constexpr (sizeof(V) == 64) {
    if constexpr (sizeof(E) == 1) return BitCast<V>(_mm512_maskz_loadu_epi8(mask, p));
    if constexpr (sizeof(E) == 2)
      return BitCast<V>(_mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), p));
    if constexpr (sizeof(E) == 4)
      return BitCast<V>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p));
    if constexpr (sizeof(E) == 8)
      return BitCast<V>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p));
  } else if constexpr (sizeof(V) == 32 && sizeof(E) == 2) {
    return BitCast<V>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p));
  }
#else
  if constexpr (sizeof(V) == 32 && sizeof(E) == 4) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return BitCast<V>(
        _mm256_maskload_epi32(static_cast<const int*>(p),
                              _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane)));
  }
#endif
  V v{};
  __builtin_memcpy(&v, p, n * sizeof(E));
  return v;
}
template <typename E, typename V>
inline void StoreSome(void* p, V v, int64_t n) {
#ifdef __AVX512F__
  const uint64_t mask = (uint64_t{1} << n) - 1;
  if constexpr (sizeof(V) == 64) {
    const __m512i bits = BitCast<__m512i>(v);
    if constexpr (sizeof(E) == 1) return _mm512_mask_storeu_epi8(p, mask, bits);
    if constexpr (sizeof(E) == 2)
      return _mm512_mask_storeu_epi16(p, static_cast<__mmask32>(mask), bits);
    if constexpr (sizeof(E) == 4)
      return _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), bits);
    if constexpr (sizeof(E) == 8)
      return _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), bits);
  } else if constexpr (sizeof(V) == 32 && sizeof(E) == 2) {
    return _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(mask), BitCast<__m256i>(v));
  }
#else
  if constexpr (sizeof(V) == 32 && sizeof(E) == 4) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskstore_epi32(static_cast<int*>(p),
                                  _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane),
                                  BitCast<__m256i>(v));
  }
#endif
  __builtin_memcpy(p, &v, n * sizeof(E));
}

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Boolean {
  uint8_t bits;
};

// The memory layout of elements of type S, and their computing type.
template <typename S>
struct Mem {
  using Compute = S;
  static constexpr int kLanes = kVectorBytes / sizeof(S);
  static Vec<S> Load(const S* p) { return LoadBytes<Vec<S>>(p); }
  static Vec<S> LoadN(const S* p, int64_t n) { return LoadSome<S, Vec<S>>(p, n); }
  static void Store(S* p, Vec<S> v) { StoreBytes(p, v); }
  static void StoreN(S* p, Vec<S> v, int64_t n) { StoreSome<S>(p, v, n); }
};

// Types whose elements are narrower than their computing type: Narrow and Widen convert whole
// vectors.
template <typename S, typename E, typename Bits>
struct ConvertingMem {
  using Compute = E;
  using Stored = VecLike<Bits, E>;
  static constexpr int kLanes = kVectorBytes / sizeof(E);
  static Vec<E> Load(const S* p) { return Mem<S>::Widen(LoadBytes<Stored>(p)); }
  static Vec<E> LoadN(const S* p, int64_t n) { return Mem<S>::Widen(LoadSome<Bits, Stored>(p, n)); }
  static void Store(S* p, Vec<E> v) { StoreBytes(p, Mem<S>::Narrow(v)); }
  static void StoreN(S* p, Vec<E> v, int64_t n) { StoreSome<Bits>(p, Mem<S>::Narrow(v), n); }
};

template <>
struct Mem<Half> : ConvertingMem<Half, float, uint16_t> {
#ifdef __AVX512F__
  static Vec<float> Widen(Stored h) {
    return BitCast<Vec<float>>(_mm512_cvtph_ps(BitCast<__m256i>(h)));
  }
  static Stored Narrow(Vec<float> v) {
    return BitCast<Stored>(_mm512_cvtps_ph(BitCast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#else
  static Vec<float> Widen(Stored h) {
    return BitCast<Vec<float>>(_mm256_cvtph_ps(BitCast<__m128i>(h)));
  }
  static Stored Narrow(Vec<float> v) {
    return BitCast<Stored>(_mm256_cvtps_ph(BitCast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
};

// By integer arithmetic, as ir/base/float.h: the processor's own conversion flushes subnormals.
template <>
struct Mem<BFloat16> : ConvertingMem<BFloat16, float, uint16_t> {
  static Vec<float> Widen(Stored h) {
    return BitCast<Vec<float>>(__builtin_convertvector(h, Vec<uint32_t>) << 16);
  }
  static Stored Narrow(Vec<float> v) {
    const Vec<uint32_t> u = BitCast<Vec<uint32_t>>(v);
    const Vec<uint32_t> rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return __builtin_convertvector(v != v ? ((u >> 16) | 0x40u) : rounded, Stored);
  }
};

template <>
struct Mem<Boolean> {
  using Compute = uint8_t;
  static constexpr int kLanes = kVectorBytes;
  static Vec<uint8_t> Load(const Boolean* p) { return Normal(LoadBytes<Vec<uint8_t>>(p)); }
  static Vec<uint8_t> LoadN(const Boolean* p, int64_t n) {
    return Normal(LoadSome<uint8_t, Vec<uint8_t>>(p, n));
  }
  static void Store(Boolean* p, Vec<uint8_t> v) { StoreBytes(p, v); }
  static void StoreN(Boolean* p, Vec<uint8_t> v, int64_t n) { StoreSome<uint8_t>(p, v, n); }
  static Vec<uint8_t> Normal(Vec<uint8_t> v) { return BitCast<Vec<uint8_t>>(v != 0) & uint8_t{1}; }
};

// Converts lanes of a mask of E to bytes 0 or 1.
template <typename E>
inline VecLike<uint8_t, E> BytesOfMask(Mask<E> m) {
  return ConvertVector<VecLike<uint8_t, E>>(m & 1);
}

}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SIMD_VECTOR_H_

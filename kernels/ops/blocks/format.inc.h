// GGUF's blocks in the form that the loops of one instruction set use, and dot products of bytes.
// The includer defines OPWIRE_ISA.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_FORMAT_INC_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_FORMAT_INC_H_

#include "kernels/abi.h"
#include "kernels/ops/blocks/cpu_loops.h"
#include "kernels/ops/simd/intrinsics.h"
#include "kernels/ops/simd/vector.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

#ifdef __AVX512VNNI__
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// An element is scale * (value - bias) + offset, with a scale for each `group`. Values are
// unsigned. Without VNNI values of q8_0 are signed, as pairs of products of larger bytes would
// saturate.
template <int kEncoding>
struct Format;
template <>
struct Format<kQ4_0> {
  static constexpr int kElements = 32, kBytes = 18, kGroup = 32, kBias = 8;
  static constexpr bool kOffset = false, kSigned = false;
};
template <>
struct Format<kQ4_1> {
  static constexpr int kElements = 32, kBytes = 20, kGroup = 32, kBias = 0;
  static constexpr bool kOffset = true, kSigned = false;
};
template <>
struct Format<kQ8_0> {
  static constexpr int kElements = 32, kBytes = 34, kGroup = 32, kBias = kVnni ? 128 : 0;
  static constexpr bool kOffset = false, kSigned = !kVnni;
};
template <>
struct Format<kQ6_K> {
  static constexpr int kElements = 256, kBytes = 210, kGroup = 16, kBias = 32;
  static constexpr bool kOffset = false, kSigned = false;
};

inline float HalfAt(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _cvtsh_ss(bits);
}

// Returns the values of a block and its scales; for q4_1 also its offset.
template <int kEncoding>
inline void Unpack(const uint8_t* block, uint8_t* values, float* scales, float* offset) {
  if constexpr (kEncoding == kQ6_K) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t *const low = block + 64 * half, *const high = block + 128 + 32 * half;
      uint8_t* const to = values + 128 * half;
      for (int i = 0; i < 32; ++i) {
        to[i] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
        to[i + 32] = static_cast<uint8_t>((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
        to[i + 64] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
        to[i + 96] = static_cast<uint8_t>(low[i + 32] >> 4 | high[i] >> 6 << 4);
      }
    }
    const float d = HalfAt(block + 208);
    for (int g = 0; g < 16; ++g)
      scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));  // exact
  } else {
    scales[0] = HalfAt(block);
    if constexpr (kEncoding == kQ4_1) *offset = HalfAt(block + 2);
    const uint8_t* const from = block + (kEncoding == kQ4_1 ? 4 : 2);
    if constexpr (kEncoding == kQ8_0) {
      for (int i = 0; i < 32; ++i) values[i] = static_cast<uint8_t>(from[i] + Format<kQ8_0>::kBias);
    } else {
      for (int i = 0; i < 16; ++i) {
        values[i] = from[i] & 15;
        values[i + 16] = from[i] >> 4;
      }
    }
  }
}

// Lanes of 32 bits, each of four bytes.
using Bytes = Vec<int32_t>;

// Adds to each lane the products of its bytes: unsigned weights (signed if `kSigned`) times signed
// values.
template <bool kSigned>
inline Bytes Dot(Bytes sum, Bytes weights, Bytes values) {
#ifdef __AVX512F__
  __m512i w = BitCast<__m512i>(weights), v = BitCast<__m512i>(values);
#ifdef __AVX512VNNI__
  static_assert(!kSigned);
  return BitCast<Bytes>(_mm512_dpbusd_epi32(BitCast<__m512i>(sum), w, v));
#else
  if constexpr (kSigned) {
    v = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(w), _mm512_setzero_si512(), v);
    w = _mm512_abs_epi8(w);
  }
  return sum + BitCast<Bytes>(_mm512_madd_epi16(_mm512_maddubs_epi16(w, v), _mm512_set1_epi16(1)));
#endif
#else
  __m256i w = BitCast<__m256i>(weights), v = BitCast<__m256i>(values);
  if constexpr (kSigned) {
    v = _mm256_sign_epi8(v, w);
    w = _mm256_abs_epi8(w);
  }
  return sum + BitCast<Bytes>(_mm256_madd_epi16(_mm256_maddubs_epi16(w, v), _mm256_set1_epi16(1)));
#endif
}

inline Vec<float> MultiplyAdd(Vec<float> a, Vec<float> b, Vec<float> sum) {
#ifdef __AVX512F__
  return BitCast<Vec<float>>(
      _mm512_fmadd_ps(BitCast<__m512>(a), BitCast<__m512>(b), BitCast<__m512>(sum)));
#else
  return BitCast<Vec<float>>(
      _mm256_fmadd_ps(BitCast<__m256>(a), BitCast<__m256>(b), BitCast<__m256>(sum)));
#endif
}

// Prefetches weights that are needed some microseconds after these `kBytes` bytes. They go to the
// second-level cache, which can have more requests in flight. The hardware's prefetcher does not
// cross pages, and stops while other loops run.
template <int kBytes>
inline void Prefetch(const uint8_t* weights) {
  constexpr int kAhead = 10240;
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(weights + kAhead + i, 0, 2);
}

constexpr int kLanes = Mem<float>::kLanes;
constexpr int64_t kDepth =
    512;  // elements along K of a panel that fits in the first-level cache, packed and unpacked

inline Vec<float> Floats(Bytes v) { return __builtin_convertvector(v, Vec<float>); }

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_FORMAT_INC_H_

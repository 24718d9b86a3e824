// Products of few rows of x with weights where they lie, for vectors of 64 bytes: two blocks of 32 at a time, or a quarter of 256. Scales come for 16 groups at
// once, out of the blocks' own bytes.
#include "kernels/ops/blocks/format.inc.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

constexpr int kGroups = 16;  // whose scales a vector holds

// Where the words of 16 scales, kWords apart, lie among vectors of 32 words: for each vector the lanes that it has, and the words that they take.
template <int kWords>
struct Places {
  static constexpr int kVectors = (15 * kWords) / 32 + 1;
  uint16_t lanes[kVectors] = {};
  alignas(64) uint16_t words[kVectors][32] = {};
  constexpr Places() {
    for (int i = 0; i < kGroups; ++i) {
      const int vector = i * kWords / 32;
      lanes[vector] = static_cast<uint16_t>(lanes[vector] | 1u << i);
      words[vector][i] = static_cast<uint16_t>(i * kWords % 32);
    }
  }
};
// The same of double words, which q4_1 has for scale and offset.
template <int kDoubles>
struct DoublePlaces {
  static constexpr int kVectors = (15 * kDoubles) / 16 + 1;
  uint16_t lanes[kVectors] = {};
  alignas(64) uint32_t words[kVectors][16] = {};
  constexpr DoublePlaces() {
    for (int i = 0; i < kGroups; ++i) {
      const int vector = i * kDoubles / 16;
      lanes[vector] = static_cast<uint16_t>(lanes[vector] | 1u << i);
      words[vector][i] = static_cast<uint32_t>(i * kDoubles % 16);
    }
  }
};

// Bytes [64 vector, 64 vector + 64) of `bytes` at p, zeros beyond.
inline __m512i LoadPart(const uint8_t* p, int64_t bytes, int vector) {
  const int64_t rest = bytes - 64 * vector;
  return _mm512_maskz_loadu_epi8(rest >= 64 ? ~uint64_t{0} : rest <= 0 ? 0 : (uint64_t{1} << rest) - 1, p + 64 * vector);
}

struct GroupScales {
  __m512 scales, offsets;
};
// Of `groups` groups, 1 to 16, the first of which is at p.
template <int kEncoding>
inline GroupScales ScalesAt(const uint8_t* p, int64_t groups) {
  using F = Format<kEncoding>;
  GroupScales out{_mm512_setzero_ps(), _mm512_setzero_ps()};
  if constexpr (kEncoding == kQ6_K) {
    const __m128i scales = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 192));
    out.scales = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)), _mm512_set1_ps(HalfAt(p + 208)));
  } else if constexpr (kEncoding == kQ4_1) {
    static constexpr DoublePlaces<F::kBytes / 4> kPlaces;
    __m512i both = _mm512_setzero_si512();
    for (int v = 0; v < kPlaces.kVectors; ++v)
      both = _mm512_mask_permutexvar_epi32(both, kPlaces.lanes[v], _mm512_load_si512(kPlaces.words[v]), LoadPart(p, groups * F::kBytes, v));
    out.scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    out.offsets = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  } else {
    static constexpr Places<F::kBytes / 2> kPlaces;
    __m512i words = _mm512_setzero_si512();
    for (int v = 0; v < kPlaces.kVectors; ++v)
      words = _mm512_mask_permutexvar_epi16(words, kPlaces.lanes[v], _mm512_load_si512(kPlaces.words[v]), LoadPart(p, groups * F::kBytes, v));
    out.scales = _mm512_cvtph_ps(_mm512_castsi512_si256(words));
  }
  return out;
}

// 64 values: of two blocks of 32 from p on, or where `both` is false of one and zeros; or quarter `quarter` of a block of 256.
template <int kEncoding>
inline Bytes ValuesAt(const uint8_t* p, int quarter, bool both) {
  using F = Format<kEncoding>;
  __m512i v;
  if constexpr (kEncoding == kQ6_K) {
    const __m512i low = _mm512_loadu_si512(p + quarter / 2 * 64);
    const __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 128 + quarter / 2 * 32)));
    const __m512i by = quarter % 2 == 0 ? _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4) : _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i placed = quarter % 2 == 0 ? _mm512_sllv_epi32(high, by) : _mm512_srlv_epi32(high, by);
    // Bits 4 and 5 of the one, the others of the other.
    v = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x30), placed, quarter % 2 == 0 ? low : _mm512_srli_epi32(low, 4), 0xca);
    v = _mm512_and_si512(v, _mm512_set1_epi8(0x3f));
  } else if constexpr (kEncoding == kQ8_0) {
    v = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2)));
    if (both) v = _mm512_inserti64x4(v, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + F::kBytes + 2)), 1);
    if constexpr (F::kBias != 0) v = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
  } else {
    // Each block's 16 bytes twice, for the low and for the high halves of bytes.
    constexpr int kStep = F::kBytes / 2, kFrom = kEncoding == kQ4_1 ? 4 : 2;
    const __m512i words = _mm512_set_epi16(kStep + 7, kStep + 6, kStep + 5, kStep + 4, kStep + 3, kStep + 2, kStep + 1, kStep, kStep + 7, kStep + 6, kStep + 5, kStep + 4, kStep + 3, kStep + 2,
                                           kStep + 1, kStep, 7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i by = _mm512_set_epi32(4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0);
    const __mmask32 there = both ? (1u << (kStep + 8)) - 1 : 0xff;
    v = _mm512_permutexvar_epi16(words, _mm512_maskz_loadu_epi16(there, p + kFrom));
    v = _mm512_and_si512(_mm512_srlv_epi32(v, by), _mm512_set1_epi8(15));
  }
  return BitCast<Bytes>(v);
}

// The lanes of 16 scales that vector `v` of values takes: 8 lanes have a block of 32, 4 lanes a group of 16.
template <int kEncoding>
inline __m512i LanesOf(int v) {
  const __m512i first = Format<kEncoding>::kGroup == 16 ? _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0) : _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_add_epi32(first, _mm512_set1_epi32(v * 64 / Format<kEncoding>::kGroup));
}

// Products of one row of weights with kRows rows of x.
template <int kEncoding, int kRows>
inline void FewOfRow(const uint8_t* w, int64_t k, const RoundedRows& x, int64_t first, float* out) {
  using F = Format<kEncoding>;
  constexpr int kStep = kGroups * F::kGroup, kVectors = kStep / 64, kChains = kRows == 1 ? 2 : 1;
  __m512 sums[kRows][kChains], of_offsets[kRows];
  for (int r = 0; r < kRows; ++r) {
    of_offsets[r] = _mm512_setzero_ps();
    for (int c = 0; c < kChains; ++c) sums[r][c] = _mm512_setzero_ps();
  }
  for (int64_t at = 0; at < k; at += kStep, w += kStep / F::kElements * F::kBytes) {
    const int64_t rest = k - at, groups = (rest < kStep ? rest : kStep) / F::kGroup;
    const GroupScales scales = ScalesAt<kEncoding>(w, groups);
    __m512 factors[kRows];
    for (int r = 0; r < kRows; ++r) {
      __m512 own;
      if constexpr (F::kGroup == 16) own = _mm512_permutexvar_ps(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), _mm512_castps256_ps512(_mm256_loadu_ps(x.Scales(first + r) + at / kBlock)));
      else own = _mm512_loadu_ps(x.Scales(first + r) + at / kBlock);
      factors[r] = _mm512_mul_ps(scales.scales, own);
      if constexpr (F::kOffset) of_offsets[r] = _mm512_fmadd_ps(scales.offsets, _mm512_loadu_ps(x.Sums(first + r) + at / kBlock), of_offsets[r]);
    }
    const auto add = [&](int v, bool both) {
      const Bytes values = ValuesAt<kEncoding>(kEncoding == kQ6_K ? w : w + 2 * v * F::kBytes, v, both);
      for (int r = 0; r < kRows; ++r) {
        const Bytes begun = F::kBias == 0 ? Bytes{} : LoadBytes<Bytes>(x.Quads(first + r) + at / 4 + 16 * v);
        const Bytes products = Dot<F::kSigned>(begun, values, LoadBytes<Bytes>(x.Values(first + r) + at + 64 * v));
        __m512& sum = sums[r][v % kChains];
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(BitCast<__m512i>(products)), _mm512_permutexvar_ps(LanesOf<kEncoding>(v), factors[r]), sum);
      }
    };
    if (groups == kGroups) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) add(v, true);
    } else {
      for (int v = 0; 2 * v < groups; ++v) add(v, 2 * v + 1 < groups);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    __m512 sum = sums[r][0];
    if constexpr (kChains == 2) sum = _mm512_add_ps(sum, sums[r][1]);
    if constexpr (F::kOffset) sum = _mm512_add_ps(sum, of_offsets[r]);
    out[r * kPanel] = _mm512_reduce_add_ps(sum);
  }
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

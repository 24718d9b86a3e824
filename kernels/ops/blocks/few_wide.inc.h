// Products of few rows of x with weights where they lie, for vectors of 64 bytes: two blocks of 32 at a time, or a quarter of 256. Scales of blocks of 32 are taken
// out of their bytes first, 16 at a time.
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

// The scales of blocks of 32, one after the other, and their offsets: of as many as rows of a panel have together, so that few loads are in vain.
constexpr int64_t kMostBlocks = 256;
struct Scales {
  alignas(64) float scales[kMostBlocks];
  alignas(64) float offsets[kMostBlocks];
};

// Of 16 blocks at p, or with `kWhole` false of the first `blocks` of them and zeros.
template <int kEncoding, bool kWhole>
inline void ScalesAt(const uint8_t* p, int64_t blocks, float* scales, float* offsets) {
  constexpr int kBytes = Format<kEncoding>::kBytes;
  const int64_t bytes = kWhole ? kGroups * kBytes : blocks * kBytes;
  if constexpr (kEncoding == kQ4_1) {
    static constexpr DoublePlaces<kBytes / 4> kPlaces;
    __m512i both = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int v = 0; v < kPlaces.kVectors; ++v) both = _mm512_mask_permutexvar_epi32(both, kPlaces.lanes[v], _mm512_load_si512(kPlaces.words[v]), LoadPart(p, bytes, v));
    _mm512_storeu_ps(scales, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)));
    _mm512_storeu_ps(offsets, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16))));
  } else {
    static constexpr Places<kBytes / 2> kPlaces;
    __m512i words = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int v = 0; v < kPlaces.kVectors; ++v) words = _mm512_mask_permutexvar_epi16(words, kPlaces.lanes[v], _mm512_load_si512(kPlaces.words[v]), LoadPart(p, bytes, v));
    _mm512_storeu_ps(scales, _mm512_cvtph_ps(_mm512_castsi512_si256(words)));
  }
}
template <int kEncoding>
inline void LoadScales(const uint8_t* p, int64_t blocks, Scales& to) {
  int64_t b = 0;
  for (; b + kGroups <= blocks; b += kGroups, p += kGroups * Format<kEncoding>::kBytes) ScalesAt<kEncoding, true>(p, kGroups, to.scales + b, to.offsets + b);
  if (b < blocks) ScalesAt<kEncoding, false>(p, blocks - b, to.scales + b, to.offsets + b);
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
    const auto twice = [&](const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (kEncoding == kQ4_1 ? 4 : 2))); };
    const __m512i by = _mm512_set_epi32(4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0);
    if (both) v = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(twice(p)), 0xff00, twice(p + F::kBytes));
    else v = _mm512_maskz_broadcast_i32x4(0xff, twice(p));
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

// Adds to out[r * kPanel] the products of elements [begin, begin + k) of one row of weights, which are at w, with those of kRows rows of x. `scales` and
// `offsets` are those of blocks of 32.
template <int kEncoding, int kRows>
inline void FewOfRow(const uint8_t* w, const float* scales, const float* offsets, int64_t begin, int64_t k, const RoundedRows& x, int64_t first, float* out) {
  using F = Format<kEncoding>;
  constexpr int kStep = kGroups * F::kGroup, kVectors = kStep / 64;
  __m512 even[kRows], odd[kRows], of_offsets[kRows];  // sums of vectors in turn
  const int8_t* values_of[kRows];
  const int32_t* quads_of[kRows];
  const float *scales_of[kRows], *sums_of[kRows];
  for (int r = 0; r < kRows; ++r) {
    values_of[r] = x.Values(first + r) + begin;
    quads_of[r] = x.Quads(first + r) + begin / 4;
    scales_of[r] = x.Scales(first + r) + begin / kBlock;
    sums_of[r] = x.Sums(first + r) + begin / kBlock;
    even[r] = odd[r] = of_offsets[r] = _mm512_setzero_ps();
  }
  for (int64_t at = 0; at < k; at += kStep, w += kStep / F::kElements * F::kBytes) {
    Prefetch<kStep / F::kElements * F::kBytes>(w);
    const int64_t groups = (k - at) / F::kGroup;
    const __mmask16 there = groups >= kGroups ? 0xffff : static_cast<__mmask16>((1u << groups) - 1);
    __m512 factors[kRows];
    if constexpr (kEncoding == kQ6_K) {
      const __m512i integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 192)));
      const __m512 own = _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(HalfAt(w + 208)));
      const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
      for (int r = 0; r < kRows; ++r) factors[r] = _mm512_mul_ps(own, _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(scales_of[r] + at / kBlock))));
    } else {
      const __m512 own = _mm512_maskz_loadu_ps(there, scales + at / kBlock);
      for (int r = 0; r < kRows; ++r) factors[r] = _mm512_mul_ps(own, _mm512_loadu_ps(scales_of[r] + at / kBlock));
    }
    if constexpr (F::kOffset) {
      const __m512 own = _mm512_maskz_loadu_ps(there, offsets + at / kBlock);
      for (int r = 0; r < kRows; ++r) of_offsets[r] = _mm512_fmadd_ps(own, _mm512_loadu_ps(sums_of[r] + at / kBlock), of_offsets[r]);
    }
    const auto add = [&](__m512* sums, int v, bool both) __attribute__((always_inline)) {
      const Bytes values = ValuesAt<kEncoding>(kEncoding == kQ6_K ? w : w + 2 * v * F::kBytes, v, both);
      for (int r = 0; r < kRows; ++r) {
        const Bytes begun = F::kBias == 0 ? Bytes{} : LoadBytes<Bytes>(quads_of[r] + at / 4 + 16 * v);
        const Bytes products = Dot<F::kSigned>(begun, values, LoadBytes<Bytes>(values_of[r] + at + 64 * v));
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(BitCast<__m512i>(products)), _mm512_permutexvar_ps(LanesOf<kEncoding>(v), factors[r]), sums[r]);
      }
    };
    if (groups >= kGroups) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v += 2) {
        add(even, v, true);
        add(odd, v + 1, true);
      }
    } else {
      int v = 0;
#pragma GCC unroll 1
      for (; 2 * v + 1 < groups; ++v) add(even, v, true);
      if (2 * v < groups) add(even, v, false);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    __m512 sum = _mm512_add_ps(even[r], odd[r]);
    if constexpr (F::kOffset) sum = _mm512_add_ps(sum, of_offsets[r]);
    out[r * kPanel] += _mm512_reduce_add_ps(sum);
  }
}

template <int kEncoding, int kRows>
inline void FewOfPanel(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, float* out) {
  using F = Format<kEncoding>;
  for (int r = 0; r < kRows; ++r) __builtin_memset(out + r * kPanel, 0, static_cast<size_t>(n) * sizeof(float));
  if constexpr (kEncoding == kQ6_K) {
    for (int64_t j = 0; j < n; ++j) FewOfRow<kEncoding, kRows>(w.blocks + j * w.stride, nullptr, nullptr, 0, w.k, x, first, out + j);
    return;
  }
  Scales all;
  const int64_t blocks = w.k / kBlock;
  if (blocks > kMostBlocks) {  // rows in parts
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t b = 0; b < blocks; b += kMostBlocks) {
        const int64_t count = blocks - b < kMostBlocks ? blocks - b : kMostBlocks;
        const uint8_t* const from = w.blocks + j * w.stride + b * F::kBytes;
        LoadScales<kEncoding>(from, count, all);
        FewOfRow<kEncoding, kRows>(from, all.scales, all.offsets, b * kBlock, count * kBlock, x, first, out + j);
      }
    }
    return;
  }
  const int64_t together = kMostBlocks / blocks;
  for (int64_t j = 0; j < n; ++j) {
    const uint8_t* const from = w.blocks + j * w.stride;
    if (j % together == 0) LoadScales<kEncoding>(from, (n - j < together ? n - j : together) * blocks, all);
    const int64_t at = j % together * blocks;
    FewOfRow<kEncoding, kRows>(from, all.scales + at, all.offsets + at, 0, w.k, x, first, out + j);
  }
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

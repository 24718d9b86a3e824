// Products of few rows of x with weights where they lie, for vectors of 64 bytes: four blocks of 4 bits at a time, two of 8 bits, or a quarter of 256 values. Scales
// of blocks of 32 are taken out of their bytes first, 16 at a time. A row's sum is a vector until those of a panel are added up together.
#include "kernels/ops/blocks/format.inc.h"
#include "kernels/ops/simd/fold.h"

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
constexpr int64_t kMostBlocks = 512;
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

// How a step of 16 groups is cut into vectors.
template <int kEncoding>
struct Wide {
  static constexpr int kVectors = kHalves<kEncoding> ? 4 : 16 * Format<kEncoding>::kGroup / 64;
  static constexpr int kGroupsOf = kGroups / kVectors;
  static constexpr int kParts = kHalves<kEncoding> ? 2 : 1;  // of values that lie 64 apart in x
};

// The unsigned values of vector v of a step at w, of which the first `there` groups are there: of two blocks of 8 bits, of four of 4 bits the low halves, then the
// high ones, or a quarter of a block of 256.
template <int kEncoding>
inline void ValuesAt(const uint8_t* w, int v, int there, __m512i* to) {
  using F = Format<kEncoding>;
  if constexpr (kEncoding == kQ6_K) {
    const __m512i low = _mm512_loadu_si512(w + v / 2 * 64);
    const __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 128 + v / 2 * 32)));
    const __m512i by = v % 2 == 0 ? _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4) : _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i placed = v % 2 == 0 ? _mm512_sllv_epi32(high, by) : _mm512_srlv_epi32(high, by);
    // Bits 4 and 5 of the one, the others of the other.
    const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x30), placed, v % 2 == 0 ? low : _mm512_srli_epi32(low, 4), 0xca);
    to[0] = _mm512_and_si512(both, _mm512_set1_epi8(0x3f));
  } else if constexpr (kEncoding == kQ8_0) {
    const uint8_t* const p = w + 2 * v * F::kBytes;
    to[0] = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2)));
    if (there > 1) to[0] = _mm512_inserti64x4(to[0], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + F::kBytes + 2)), 1);
    if constexpr (F::kBias != 0) to[0] = _mm512_xor_si512(to[0], _mm512_set1_epi8(-128));
  } else {
    const uint8_t* const p = w + 4 * v * F::kBytes + F::kBytes - 16;
    const auto of = [&](int b) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + b * F::kBytes)); };
    __m512i four = _mm512_zextsi128_si512(of(0));
    if (there > 1) four = _mm512_mask_broadcast_i32x4(four, 0x00f0, of(1));
    if (there > 2) four = _mm512_mask_broadcast_i32x4(four, 0x0f00, of(2));
    if (there > 3) four = _mm512_mask_broadcast_i32x4(four, 0xf000, of(3));
    to[0] = _mm512_and_si512(four, _mm512_set1_epi8(15));
    to[1] = _mm512_and_si512(_mm512_srli_epi32(four, 4), _mm512_set1_epi8(15));
  }
}

// The lanes of 16 scales that the vector takes.
template <int kEncoding>
inline __m512i LanesOf(int v) {
  constexpr int kEach = 16 / Wide<kEncoding>::kGroupsOf;
  const __m512i first = kEach == 4 ? _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0) : _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_add_epi32(first, _mm512_set1_epi32(v * Wide<kEncoding>::kGroupsOf));
}

// A row of x from some element on.
struct RowOfX {
  const int8_t* values;
  const int32_t* quads;
  const float *scales, *sums;
};
template <int kEncoding>
inline RowOfX RowAt(const RoundedRows& x, int64_t row, int64_t element) {
  return {x.Values(row) + element, x.Quads(row) + element / 4 / Wide<kEncoding>::kParts, x.Scales(row) + element / kBlock, x.Sums(row) + element / kBlock};
}

// Adds to `even` and `odd`, lane by lane, the products of 16 groups of weights at w, or where `kWhole` is false of the first `groups` of them, with elements of kRows
// rows of x from `at` on. `scales` and `offsets` are those of blocks of 32.
template <int kEncoding, int kRows, bool kWhole>
inline __attribute__((always_inline)) void AddStep(const uint8_t* w, const float* scales, const float* offsets, int groups, const RowOfX* x, int64_t at, __m512* even, __m512* odd) {
  using F = Format<kEncoding>;
  using W = Wide<kEncoding>;
  const auto load = [&](const float* from) { return kWhole ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << groups) - 1), from); };
  __m512 factors[kRows];
  if constexpr (kEncoding == kQ6_K) {
    const __m512i integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 192)));
    const __m512 own = _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(HalfAt(w + 208)));
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (int r = 0; r < kRows; ++r) factors[r] = _mm512_mul_ps(own, _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(x[r].scales + at / kBlock))));
  } else {
    const __m512 own = load(scales);
    for (int r = 0; r < kRows; ++r) factors[r] = _mm512_mul_ps(own, _mm512_loadu_ps(x[r].scales + at / kBlock));
  }
  if constexpr (F::kOffset) {
    const __m512 own = load(offsets);
    for (int r = 0; r < kRows; ++r) odd[r] = _mm512_fmadd_ps(own, _mm512_loadu_ps(x[r].sums + at / kBlock), odd[r]);
  }
  const auto add = [&](__m512* to, int v, int there) __attribute__((always_inline)) {
    __m512i values[W::kParts];
    ValuesAt<kEncoding>(w, v, there, values);
    for (int r = 0; r < kRows; ++r) {
      Bytes products = F::kBias == 0 ? Bytes{} : LoadBytes<Bytes>(x[r].quads + at / 4 / W::kParts + 16 * v);
      for (int i = 0; i < W::kParts; ++i) products = Dot<F::kSigned>(products, BitCast<Bytes>(values[i]), LoadBytes<Bytes>(x[r].values + at + 64 * (v * W::kParts + i)));
      to[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(BitCast<__m512i>(products)), _mm512_permutexvar_ps(LanesOf<kEncoding>(v), factors[r]), to[r]);
    }
  };
  if constexpr (kWhole) {
#pragma GCC unroll 4
    for (int v = 0; v < W::kVectors; v += 2) {
      add(even, v, W::kGroupsOf);
      add(odd, v + 1, W::kGroupsOf);
    }
  } else {
    int v = 0;
#pragma GCC unroll 1
    for (; (v + 1) * W::kGroupsOf <= groups; ++v) add(even, v, W::kGroupsOf);
    if (v * W::kGroupsOf < groups) add(odd, v, groups - v * W::kGroupsOf);
  }
}

// Adds to sums[r], lane by lane, the products of the first k elements of a row of weights from w on with those of x.
template <int kEncoding, int kRows>
inline __attribute__((always_inline)) void AddRow(const uint8_t* w, const float* scales, const float* offsets, int64_t k, const RowOfX* x, __m512* sums) {
  using F = Format<kEncoding>;
  constexpr int kStep = kGroups * F::kGroup, kBytes = kStep / F::kElements * F::kBytes;
  __m512 odd[kRows] = {};  // of every other vector
  int64_t at = 0;
  for (; at + kStep <= k; at += kStep, w += kBytes, scales += kGroups, offsets += kGroups) {
    Prefetch<kBytes>(w);
    AddStep<kEncoding, kRows, true>(w, scales, offsets, kGroups, x, at, sums, odd);
  }
  if constexpr (kStep > F::kElements) {
    if (at < k) {
      Prefetch<64>(w);
      AddStep<kEncoding, kRows, false>(w, scales, offsets, static_cast<int>((k - at) / F::kGroup), x, at, sums, odd);
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_add_ps(sums[r], odd[r]);
}

template <int kEncoding, int kRows>
inline void FewOfPanel(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, float* out) {
  using F = Format<kEncoding>;
  __m512 sums[kPanel][kRows] = {};
  Scales all;  // of rows together, or of parts of one
  const int64_t blocks = w.k / F::kElements;
  const bool parts = kEncoding != kQ6_K && blocks > kMostBlocks;  // of rows
  const int64_t most = parts ? kMostBlocks : blocks, together = kEncoding == kQ6_K ? n : parts ? 1 : kMostBlocks / blocks;
  for (int64_t b = 0; b < blocks; b += most) {
    const int64_t count = most < blocks - b ? most : blocks - b;
    RowOfX rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = RowAt<kEncoding>(x, first + r, b * F::kElements);
    for (int64_t begin = 0; begin < n; begin += together) {
      const int64_t end = begin + together < n ? begin + together : n;
      const uint8_t* from = w.blocks + begin * w.stride + b * F::kBytes;
      if constexpr (kEncoding != kQ6_K) LoadScales<kEncoding>(from, (end - begin) * count, all);
      for (int64_t j = begin, at = 0; j < end; ++j, at += count, from += w.stride) AddRow<kEncoding, kRows>(from, all.scales + at, all.offsets + at, count * F::kElements, rows, sums[j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Vec<float> of_row[kPanel];
    for (int j = 0; j < kPanel; ++j) of_row[j] = BitCast<Vec<float>>(sums[j][r]);
    Mem<float>::Store(out + r * kPanel, SumsOf<float>(of_row));
  }
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

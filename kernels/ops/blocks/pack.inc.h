// Packs panels of weights. The includer defines OPWIRE_ISA.
#include "kernels/ops/blocks/format.inc.h"
#include "kernels/ops/blocks/packed.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Writes four words of each row, read at `at`(row), word by word.
template <typename At>
inline __attribute__((always_inline)) void InterleaveWords(const At& at, uint8_t* to) {
  const auto load = [&](int row) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(row)));
  };
#ifdef __AVX512F__
  // Of rows 4 i to 4 i + 3; afterwards two words each of eight rows.
  __m512i four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm512_zextsi128_si512(load(4 * i));
    four[i] = _mm512_mask_broadcast_i32x4(four[i], 0x00f0, load(4 * i + 1));
    four[i] = _mm512_mask_broadcast_i32x4(four[i], 0x0f00, load(4 * i + 2));
    four[i] = _mm512_mask_broadcast_i32x4(four[i], 0xf000, load(4 * i + 3));
  }
  const __m512i first = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0),
                second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  for (int pair = 0; pair < 2; ++pair) {
    const __m512i by = pair == 0 ? first : second;
    const __m512i low = _mm512_permutex2var_epi32(four[0], by, four[1]),
                  high = _mm512_permutex2var_epi32(four[2], by, four[3]);
    _mm512_storeu_si512(to + pair * 128, _mm512_shuffle_i64x2(low, high, 0x44));
    _mm512_storeu_si512(to + pair * 128 + 64, _mm512_shuffle_i64x2(low, high, 0xee));
  }
#else
  for (int half = 0; half < 2; ++half) {
    __m256i two[4];
    for (int i = 0; i < 4; ++i)
      two[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(8 * half + i)),
                                       load(8 * half + 4 + i), 1);
    const __m256i low01 = _mm256_unpacklo_epi32(two[0], two[1]),
                  high01 = _mm256_unpackhi_epi32(two[0], two[1]);
    const __m256i low23 = _mm256_unpacklo_epi32(two[2], two[3]),
                  high23 = _mm256_unpackhi_epi32(two[2], two[3]);
    const auto store = [&](int word, __m256i v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + word * 64 + half * 32), v);
    };
    store(0, _mm256_unpacklo_epi64(low01, low23));
    store(1, _mm256_unpackhi_epi64(low01, low23));
    store(2, _mm256_unpacklo_epi64(high01, high23));
    store(3, _mm256_unpackhi_epi64(high01, high23));
  }
#endif
}

// Packs a block of each row, read at `at`(row), as block b of a unit.
template <int kEncoding, typename At>
inline __attribute__((always_inline)) void PackBlock(const At& at, int b, uint8_t* unit) {
  constexpr PackedFormat kFormat = PackedFormatOf(kEncoding);
  for (int i = 0; i < kFormat.words; i += 4) {
    InterleaveWords(
        [&](int row) __attribute__((always_inline)) { return at(row) + kFormat.words_at + 4 * i; },
        unit + b * kFormat.WordsBytes() + i * kPanel * 4);
  }
  uint8_t* const scales = unit + kFormat.ScalesAt() + b * kPanel * kFormat.scale;
#pragma GCC unroll 16
  for (int row = 0; row < kPanel; ++row)
    __builtin_memcpy(scales + row * kFormat.scale, at(row) + kFormat.scale_at, kFormat.scale);
}

// Packs blocks [begin, end) of a panel's rows into units starting at `to`. The panel has n rows.
// REQUIRES: a unit begins with `begin`.
template <int kEncoding>
void Pack(const BlockRows& w, int64_t n, int64_t begin, int64_t end, uint8_t* to) {
  constexpr PackedFormat kFormat = PackedFormatOf(kEncoding);
  const uint8_t* from = w.blocks + begin * kFormat.bytes;
  // Prefetches as many bytes of each row as are packed: the next ones, or those of the next panel.
  const int64_t stride = w.stride, bytes = (end - begin) * kFormat.bytes;
  const uint8_t* const next =
      end * kFormat.elements < w.k ? from + bytes : w.blocks + kPanel * stride;
  for (int64_t block = begin; block < end; block += kFormat.blocks, to += kFormat.UnitBytes()) {
#pragma GCC unroll 2
    for (int b = 0; b < kFormat.blocks; ++b, from += kFormat.bytes) {
      if (block + b >= end) {
        static constexpr uint8_t kNone[kFormat.bytes] = {};
        PackBlock<kEncoding>([](int) { return kNone; }, b, to);
      } else if (n < kPanel) {  // row 0 stands in for missing rows, which are not read
        PackBlock<kEncoding>([&](int row) { return from + (row < n ? row : 0) * stride; }, b, to);
      } else {
        const uint8_t* const fours[] = {from, from + 4 * stride, from + 8 * stride,
                                        from + 12 * stride};
        PackBlock<kEncoding>(
            [&](int row)
                __attribute__((always_inline)) { return fours[row / 4] + row % 4 * stride; },
            b, to);
        for (int64_t row = block + b - begin; row < kPanel; row += end - begin) {
          for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + row * stride + i, 0, 2);
        }
      }
    }
  }
}

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA

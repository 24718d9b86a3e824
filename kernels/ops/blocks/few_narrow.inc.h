// Products of few rows of x with weights where they lie, for vectors of 32 bytes: 32 values at a time.
#include "kernels/ops/blocks/format.inc.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

// 32 values: of a block of 32, or part `part` of one of 256.
template <int kEncoding>
inline Bytes ValuesAt(const uint8_t* p, int part) {
  __m256i v;
  if constexpr (kEncoding == kQ6_K) {
    const int half = part / 4, quarter = part % 4;
    __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64 * half + quarter % 2 * 32));
    __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 128 + 32 * half));
    if (quarter >= 2) low = _mm256_srli_epi16(low, 4);
    high = quarter == 0 ? _mm256_slli_epi16(high, 4) : quarter == 1 ? _mm256_slli_epi16(high, 2) : quarter == 2 ? high : _mm256_srli_epi16(high, 2);
    v = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)), _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
  } else if constexpr (kEncoding == kQ8_0) {
    v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2));
  } else {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + (kEncoding == kQ4_1 ? 4 : 2)));
    v = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), _mm256_set1_epi8(15));
  }
  return BitCast<Bytes>(v);
}

// Products of one row of weights with kRows rows of x.
template <int kEncoding, int kRows>
inline void FewOfRow(const uint8_t* w, int64_t k, const RoundedRows& x, int64_t first, float* out) {
  using F = Format<kEncoding>;
  Vec<float> sums[kRows] = {};
  float of_offsets[kRows] = {};
  const int8_t* values_of[kRows];
  const int32_t* quads_of[kRows];
  const float *scales_of[kRows], *sums_of[kRows];
  for (int r = 0; r < kRows; ++r) {
    values_of[r] = x.Values(first + r);
    quads_of[r] = x.Quads(first + r);
    scales_of[r] = x.Scales(first + r);
    sums_of[r] = x.Sums(first + r);
  }
  for (int64_t at = 0; at < k; at += F::kElements, w += F::kBytes) {
    const float d = HalfAt(kEncoding == kQ6_K ? w + 208 : w);
#pragma GCC unroll 8
    for (int part = 0; part < F::kElements / 32; ++part) {
      const Bytes values = ValuesAt<kEncoding>(w, part);
      Vec<float> scale;
      if constexpr (kEncoding == kQ6_K) {
        const auto of = [&](int g) { return _mm_set1_ps(d * static_cast<float>(static_cast<int8_t>(w[192 + 2 * part + g]))); };
        scale = BitCast<Vec<float>>(_mm256_set_m128(of(1), of(0)));
      } else {
        scale = Splat(d);
      }
      for (int r = 0; r < kRows; ++r) {
        const int64_t begin = at + 32 * part;
        const Bytes begun = F::kBias == 0 ? Bytes{} : LoadBytes<Bytes>(quads_of[r] + begin / 4);
        const Bytes products = Dot<F::kSigned>(begun, values, LoadBytes<Bytes>(values_of[r] + begin));
        sums[r] = MultiplyAdd(Floats(products), scale * Splat(scales_of[r][begin / kBlock]), sums[r]);
        if constexpr (F::kOffset) of_offsets[r] += HalfAt(w + 2) * sums_of[r][begin / kBlock];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 v = BitCast<__m256>(sums[r]);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    out[r * kPanel] = _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four))) + of_offsets[r];
  }
}

template <int kEncoding, int kRows>
inline void FewOfPanel(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, float* out) {
  for (int64_t j = 0; j < n; ++j) FewOfRow<kEncoding, kRows>(w.blocks + j * w.stride, w.k, x, first, out + j);
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

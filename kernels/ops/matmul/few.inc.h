// The products of a few rows of one instruction set: four columns at a time, each by a vector of
// sums for each row. The includer defines OPWIRE_ISA.
#include <type_traits>

#include "kernels/abi.h"
#include "kernels/ops/matmul/few.h"
#include "kernels/ops/simd/math.h"

namespace opwire::ops::matmul::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// In a fixed order.
inline float SumOfLanes(Vec<float> v) {
#ifdef __AVX512F__
  const __m512 whole = BitCast<__m512>(v);
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(whole),
                    _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(whole), 1)));
#else
  const __m256 half = BitCast<__m256>(v);
#endif
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

// Sums of kColumns columns from y on, those of row r from to + r * kFewColumns on.
template <typename E, int kRows, int kColumns>
inline void SumColumns(const FewCall& c, const E* y, float* to) {
  constexpr int kLanes = Mem<E>::kLanes;
  Vec<float> sums[kRows][kColumns] = {};
  const auto add = [&](int64_t l, const auto& load) {
    Vec<float> column[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      column[j] = load(y + j * c.y_n + l);
      if constexpr (kColumns > 1)
        __builtin_prefetch(
            y + (j + kColumns) * c.y_n + l, 0,
            2);  // the next columns: short ones end before the processor sees where they lead
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec<float> x = load(c.x + r * c.k + l);
      for (int j = 0; j < kColumns; ++j) sums[r][j] = Fma(x, column[j], sums[r][j]);
    }
  };
  int64_t l = 0;
  for (; l + kLanes <= c.k; l += kLanes) {
    add(l, [](const auto* p) { return Mem<std::remove_cvref_t<decltype(*p)>>::Load(p); });
  }
  if (const int64_t rest = c.k - l; rest > 0) {
    add(l,
        [rest](const auto* p) { return Mem<std::remove_cvref_t<decltype(*p)>>::LoadN(p, rest); });
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) to[r * kFewColumns + j] = SumOfLanes(sums[r][j]);
  }
}

inline Vec<float> Activated(Vec<float> v, int activation) {
  switch (activation) {
    case 1:
      return v <= 0.0f ? Vec<float>{} : v;
    case 2:
      return v * 0.5f * (1.0f + Erf(v * 0.70710678118654752440f));
    case 3:
      return v * 0.5f * (1.0f + Tanh(0.79788456080286535588f * (v + 0.044715f * (v * v * v))));
    case 4:
      return v / (1.0f + Exp(-v));
    default:
      return v;
  }
}

template <typename E, int kRows>
void Few(const FewCall& c, int64_t begin, int64_t end) {
  constexpr int kLanes = Mem<E>::kLanes;
  static_assert(kFewColumns % kLanes == 0);
  const E* const y = static_cast<const E*>(c.y);
  for (int64_t first = begin; first < end; first += kFewColumns) {
    const int64_t count = end - first < kFewColumns ? end - first : kFewColumns;
    float sums[kRows * kFewColumns] = {};
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) SumColumns<E, kRows, 4>(c, y + (first + j) * c.y_n, sums + j);
    for (; j < count; ++j) SumColumns<E, kRows, 1>(c, y + (first + j) * c.y_n, sums + j);
    for (int64_t at = 0; at < count; at += kLanes) {
      const int64_t left = count - at;
      Vec<float> bias = {};
      if (c.bias != nullptr) {
        const E* const from = static_cast<const E*>(c.bias) + first + at;
        bias = left < kLanes ? Mem<E>::LoadN(from, left) : Mem<E>::Load(from);
      }
      for (int r = 0; r < kRows; ++r) {
        const Vec<float> v =
            Activated(LoadBytes<Vec<float>>(sums + r * kFewColumns + at) + bias, c.activation);
        E* const to = static_cast<E*>(c.z) + r * c.z_m + first + at;
        if (left < kLanes)
          Mem<E>::StoreN(to, v, left);
        else
          Mem<E>::Store(to, v);
      }
    }
  }
}

template <typename E>
constexpr void Fill(FewLoop (&by_rows)[kMostFewRows]) {
  by_rows[0] = Few<E, 1>;
  by_rows[1] = Few<E, 2>;
  by_rows[2] = Few<E, 3>;
  by_rows[3] = Few<E, 4>;
}
constexpr FewLoops Loops() {
  FewLoops t{};
  Fill<float>(t.by_type[OPW_F32]);
  Fill<Half>(t.by_type[OPW_F16]);
  Fill<BFloat16>(t.by_type[OPW_BF16]);
  return t;
}
constexpr FewLoops kFewLoops = Loops();

}  // namespace
}  // namespace opwire::ops::matmul::OPWIRE_ISA

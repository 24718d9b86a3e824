// Products of a few rows of x with a packed panel. A vector holds four neighbours along K of each
// of its rows. It is multiplied with a row's four elements of x in all lanes. Sums of products of
// integers are exact, and the results of groups are added in their order. So the bits do not depend
// on the implementation.
#include "kernels/ops/blocks/format.inc.h"
#include "kernels/ops/blocks/packed.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Calls use(q, values) with the quads [begin, end) of each run of a packed block; q counts its
// elements by four. A block is one run of quads that share a scale. A block of q6_k has two halves
// of four runs; each step then reads one quad of each run.
template <int kEncoding, typename Use>
inline __attribute__((always_inline)) void ForQuads(const uint8_t* words, int lanes_at, int begin,
                                                    int end, const Use& use) {
  const auto word = [&](int i) {
    return LoadBytes<Bytes>(words + i * (kPanel * 4) + lanes_at * 4);
  };
  constexpr int32_t kLow = 0x0f0f0f0f, kTwo = 0x30303030;
#pragma GCC unroll 8
  for (int i = begin; i < end; ++i) {
    if constexpr (kEncoding == kQ8_0) {
      use(i, Format<kQ8_0>::kBias != 0 ? word(i) ^ static_cast<int32_t>(0x80808080) : word(i));
    } else if constexpr (kEncoding == kQ6_K) {
      // Words of four bits belong to an element and to the one 64 after it; words of two bits to
      // elements 32 apart.
      const int half = i / 8, at = i % 8, q = 32 * half + at;
      const Bytes first = word(16 * half + at), second = word(16 * half + 8 + at),
                  high = word(32 + 8 * half + at);
      use(q, (first & kLow) | (high << 4 & kTwo));
      use(q + 8, (second & kLow) | (high << 2 & kTwo));
      use(q + 16, (first >> 4 & kLow) | (high & kTwo));
      use(q + 24, (second >> 4 & kLow) | (high >> 2 & kTwo));
    } else {
      Bytes both = word(i);
      asm("" : "+x"(both));  // read once: loads are the most frequent instructions
      use(i, both & kLow);
      use(i + 4, both >> 4 & kLow);
    }
  }
}

// Groups in the order in which their products are added.
template <int kEncoding>
constexpr int64_t GroupAt(int64_t i) {
  return kEncoding == kQ6_K ? i / 8 * 8 + i % 4 * 2 + i / 4 % 2 : i;
}
// Returns the scales of group g of block b of a unit.
template <int kEncoding>
inline Vec<float> ScalesAt(const uint8_t* unit, int b, int g, int lanes_at) {
  constexpr PackedFormat kPacked = PackedFormatOf(kEncoding);
  const uint8_t* const at = unit + kPacked.ScalesAt() + (b * kPanel + lanes_at) * kPacked.scale;
  if constexpr (kEncoding == kQ4_1) {
    return Mem<Half>::Widen(
        __builtin_convertvector(LoadBytes<Vec<uint32_t>>(at), Mem<Half>::Stored));
  } else if constexpr (kEncoding == kQ6_K) {
    const Bytes four = LoadBytes<Bytes>(unit + b * kPacked.WordsBytes() +
                                        (48 + g / 4) * (kPanel * 4) + lanes_at * 4);
    return Mem<Half>::Load(reinterpret_cast<const Half*>(at)) *
           Floats(four << (24 - g % 4 * 8) >> 24);  // exact
  } else {
    return Mem<Half>::Load(reinterpret_cast<const Half*>(at));
  }
}
inline Vec<float> OffsetsAt(const uint8_t* unit, int b, int lanes_at) {
  constexpr PackedFormat kPacked = PackedFormatOf(kQ4_1);
  return Mem<Half>::Widen(
      __builtin_convertvector(LoadBytes<Vec<uint32_t>>(unit + kPacked.ScalesAt() +
                                                       (b * kPanel + lanes_at) * kPacked.scale) >>
                                  16,
                              Mem<Half>::Stored));
}

// Adds to out[r * kPanel + j] the products of `blocks` blocks, starting with unit `unit`. Its first
// block has x's elements starting with `begin`.
template <int kEncoding, int kRows>
void FewOf(const uint8_t* unit, int64_t blocks, const RoundedRows& x, int64_t first, int64_t begin,
           float* out) {
  using F = Format<kEncoding>;
  constexpr PackedFormat kPacked = PackedFormatOf(kEncoding);
  constexpr int kRuns = kEncoding == kQ6_K ? 4 : 1, kTimes = F::kElements / F::kGroup / kRuns,
                kSteps = kEncoding == kQ8_0 ? 8 : 4;
  constexpr int kChains =
      kRuns == 1 && kRows == 1 ? 2 : 1;  // independent chains of dependent products
  struct Row {
    const int8_t* values;
    const float *scales, *sums;
    const int32_t* groups;
  } rows[kRows];
  for (int lanes_at = 0; lanes_at < kPanel; lanes_at += kLanes) {
    Vec<float> sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      sums[r] = LoadBytes<Vec<float>>(out + r * kPanel + lanes_at);
      rows[r] = {x.Values(first + r) + begin, x.Scales(first + r) + begin / kBlock,
                 x.Sums(first + r) + begin / kBlock, x.Groups(first + r) + begin / F::kGroup};
    }
    const uint8_t* at = unit;
    for (int64_t block = 0; block < blocks; block += kPacked.blocks, at += kPacked.UnitBytes()) {
      Prefetch<kPacked.UnitBytes()>(at);
      for (int b = 0; b < kPacked.blocks && block + b < blocks; ++b) {
#pragma GCC unroll 1
        for (int time = 0; time < kTimes; ++time) {
          const auto group = [&](int run) {
            return static_cast<int>(GroupAt<kEncoding>(time * kRuns + run));
          };
          Bytes products[kRuns * kChains][kRows] = {};
          for (int run = 0; F::kBias != 0 && run < kRuns; ++run) {
            for (int r = 0; r < kRows; ++r)
              products[run][r] = Splat(rows[r].groups[b * (F::kElements / F::kGroup) + group(run)]);
          }
          ForQuads<kEncoding>(
              at + b * kPacked.WordsBytes(), lanes_at, time * kSteps,
              (time + 1) * kSteps, [&](int q, Bytes quad) __attribute__((always_inline)) {
                const int run = kEncoding == kQ6_K ? q % 32 / 8 : q / 4 % kChains;
                for (int r = 0; r < kRows; ++r) {
                  int32_t v;
                  __builtin_memcpy(&v, rows[r].values + b * F::kElements + 4 * q, 4);
                  products[run][r] = Dot<F::kSigned>(products[run][r], quad, Splat(v));
                }
              });
          for (int run = 0; run < kRuns; ++run) {
            if constexpr (kChains == 2) products[0][0] += products[1][0];
            const Vec<float> scales = ScalesAt<kEncoding>(at, b, group(run), lanes_at);
            for (int r = 0; r < kRows; ++r) {
              const int of_x =
                  (b * F::kElements + group(run) * F::kGroup) / static_cast<int>(kBlock);
              sums[r] = MultiplyAdd(Floats(products[run][r]) * scales, Splat(rows[r].scales[of_x]),
                                    sums[r]);
              if constexpr (F::kOffset)
                sums[r] =
                    MultiplyAdd(OffsetsAt(at, b, lanes_at), Splat(rows[r].sums[of_x]), sums[r]);
            }
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        rows[r].values += kPacked.UnitElements();
        rows[r].scales += kPacked.UnitElements() / kBlock;
        rows[r].sums += kPacked.UnitElements() / kBlock;
        rows[r].groups += kPacked.UnitElements() / F::kGroup;
      }
    }
    for (int r = 0; r < kRows; ++r) StoreBytes(out + r * kPanel + lanes_at, sums[r]);
  }
}

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA

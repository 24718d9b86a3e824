// Products of many rows of x with a packed panel, which is unpacked so that a vector holds four
// neighbours along K of each of its rows. A tile of rows of x meets it quad by quad, a row's quad
// in all lanes.
#include "kernels/ops/blocks/few.inc.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

#ifdef __AVX512F__
constexpr int kTile = 8;  // rows of x: registers hold two sums of each
#else
constexpr int kTile = 4;
#endif
static_assert(kPanel % kLanes == 0 && kTileRows % kTile == 0 && kPadding % kDepth == 0);

template <int kEncoding>
struct Panel {
  using F = Format<kEncoding>;
  Bytes values[kDepth / 4];
  Vec<float> scales[kDepth / F::kGroup];
  Vec<float> offsets[F::kOffset ? kDepth / F::kGroup : 1];

  // Rows lanes_at to lanes_at + kLanes of `blocks` packed blocks.
  void Load(const uint8_t* unit, int lanes_at, int64_t blocks) {
    constexpr PackedFormat kPacked = PackedFormatOf(kEncoding);
    constexpr int kGroups = F::kElements / F::kGroup, kQuads = F::kElements / 4;
    for (int64_t block = 0; block < blocks; ++block) {
      const int b = static_cast<int>(block % kPacked.blocks);
      const uint8_t* const at = unit + block / kPacked.blocks * kPacked.UnitBytes();
      ForQuads<kEncoding>(
          at + b * kPacked.WordsBytes(), lanes_at, 0, kEncoding == kQ6_K ? 16 : kPacked.words,
          [&](int q, Bytes quad)
              __attribute__((always_inline)) { values[block * kQuads + q] = quad; });
      for (int g = 0; g < kGroups; ++g)
        scales[block * kGroups + g] = ScalesAt<kEncoding>(at, b, g, lanes_at);
      if constexpr (F::kOffset) offsets[block] = OffsetsAt(at, b, lanes_at);
    }
  }
};

// Adds to out[r * kPanel + lane] for kTile rows of x.
template <int kEncoding>
inline void Tile(const Panel<kEncoding>& panel, const RoundedRows& x, int64_t row, int64_t begin,
                 int64_t blocks, float* out) {
  using F = Format<kEncoding>;
  Vec<float> sums[kTile];
  const int8_t* values[kTile];
  const float* scales[kTile];
  for (int r = 0; r < kTile; ++r) {
    sums[r] = LoadBytes<Vec<float>>(out + r * kPanel);
    values[r] = x.Values(row + r) + begin;
    scales[r] = x.Scales(row + r) + begin / kBlock;
  }
  const int64_t apart = x.padded / kBlock,
                groups_at = begin / F::kGroup;  // of a row's sums from its scales
  for (int64_t i = 0; i < blocks * (F::kElements / F::kGroup); ++i) {
    const int64_t g = GroupAt<kEncoding>(i);
    Bytes products[kTile];
    for (int r = 0; r < kTile; ++r)
      products[r] = F::kBias == 0 ? Bytes{} : Splat(x.Groups(row + r)[groups_at + g]);
#pragma GCC unroll 8
    for (int q = 0; q < F::kGroup / 4; ++q) {
      const int64_t quad = g * (F::kGroup / 4) + q;
      for (int r = 0; r < kTile; ++r) {
        int32_t v;
        __builtin_memcpy(&v, values[r] + 4 * quad, 4);
        products[r] = Dot<F::kSigned>(products[r], panel.values[quad], Splat(v));
      }
    }
    for (int r = 0; r < kTile; ++r) {
      const float* const own = scales[r] + g * F::kGroup / kBlock;
      sums[r] = MultiplyAdd(Floats(products[r]) * panel.scales[g], Splat(*own), sums[r]);
      if constexpr (F::kOffset) sums[r] = MultiplyAdd(panel.offsets[g], Splat(own[apart]), sums[r]);
    }
  }
  for (int r = 0; r < kTile; ++r) StoreBytes(out + r * kPanel, sums[r]);
}

template <int kEncoding>
void ManyOf(const uint8_t* unit, int64_t blocks, const RoundedRows& x, int64_t first, int64_t rows,
            int64_t begin, float* out) {
  Panel<kEncoding> panel;
  for (int lanes_at = 0; lanes_at < kPanel; lanes_at += kLanes) {
    panel.Load(unit, lanes_at, blocks);
    for (int64_t r = 0; r < rows; r += kTile)
      Tile(panel, x, first + r, begin, blocks, out + r * kPanel + lanes_at);
  }
}

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA

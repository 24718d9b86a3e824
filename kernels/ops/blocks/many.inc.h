// Products of many rows of x with a panel of weights: as many rows of them as a vector has lanes, unpacked so that a vector holds four neighbours along K
// of each. A tile of rows of x meets it quad by quad, a row's quad in all lanes.
#include "kernels/ops/blocks/format.inc.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

constexpr int kLanes = Mem<float>::kLanes;
constexpr int64_t kDepth = 1024;  // elements along K that are unpacked at one time: they stay in the first cache
#ifdef __AVX512F__
constexpr int kTile = 8;  // rows of x: registers hold two sums of each
#else
constexpr int kTile = 4;
#endif
static_assert(kPanel % kLanes == 0 && kTileRows % kTile == 0 && kPadding % 256 == 0);

template <int kEncoding>
struct Panel {
  using F = Format<kEncoding>;
  alignas(64) uint8_t values[kDepth / 4][kLanes][4];
  alignas(64) float scales[kDepth / F::kGroup][kLanes];
  alignas(64) float offsets[F::kOffset ? kDepth / F::kGroup : 1][kLanes];

  // Elements [begin, begin + depth) of rows 0 to n; of others zeros.
  void Load(const BlockRows& w, int64_t n, int64_t begin, int64_t depth) {
    if (n < kLanes) __builtin_memset(this, 0, sizeof(*this));
    for (int64_t j = 0; j < n; ++j) {
      const uint8_t* block = w.blocks + j * w.stride + begin / F::kElements * F::kBytes;
      for (int64_t k = 0; k < depth; k += F::kElements, block += F::kBytes) {
        alignas(64) uint8_t unpacked[F::kElements];
        float s[F::kElements / F::kGroup], offset = 0;
        Unpack<kEncoding>(block, unpacked, s, &offset);
        for (int i = 0; i < F::kElements / 4; ++i) __builtin_memcpy(values[k / 4 + i][j], unpacked + 4 * i, 4);
        for (int g = 0; g < F::kElements / F::kGroup; ++g) scales[k / F::kGroup + g][j] = s[g];
        if constexpr (F::kOffset) offsets[k / F::kGroup][j] = offset;
      }
    }
  }
};

// Adds to out[r * kPanel + lane] for kTile rows of x.
template <int kEncoding>
inline void Tile(const Panel<kEncoding>& panel, const RoundedRows& x, int64_t row, int64_t begin, int64_t depth, float* out) {
  using F = Format<kEncoding>;
  Vec<float> sums[kTile];
  const int8_t* values[kTile];
  const float* scales[kTile];
  for (int r = 0; r < kTile; ++r) {
    sums[r] = LoadBytes<Vec<float>>(out + r * kPanel);
    values[r] = x.Values(row + r) + begin;
    scales[r] = x.Scales(row + r) + begin / kBlock;
  }
  const int64_t apart = x.padded / kBlock, groups_at = begin / F::kGroup;  // of a row's sums from its scales
  for (int64_t g = 0; g < depth / F::kGroup; ++g) {
    Bytes products[kTile];
    for (int r = 0; r < kTile; ++r) products[r] = F::kBias == 0 ? Bytes{} : Splat(x.Groups(row + r)[groups_at + g]);
#pragma GCC unroll 8
    for (int q = 0; q < F::kGroup / 4; ++q) {
      const int64_t quad = g * (F::kGroup / 4) + q;
      const Bytes w = LoadBytes<Bytes>(panel.values[quad]);
      for (int r = 0; r < kTile; ++r) {
        int32_t v;
        __builtin_memcpy(&v, values[r] + 4 * quad, 4);
        products[r] = Dot<F::kSigned>(products[r], w, Splat(v));
      }
    }
    const Vec<float> scale = LoadBytes<Vec<float>>(panel.scales[g]);
    for (int r = 0; r < kTile; ++r) {
      const float* const own = scales[r] + g * F::kGroup / kBlock;
      sums[r] = MultiplyAdd(Floats(products[r]) * scale, Splat(*own), sums[r]);
      if constexpr (F::kOffset) sums[r] = MultiplyAdd(LoadBytes<Vec<float>>(panel.offsets[g]), Splat(own[apart]), sums[r]);
    }
  }
  for (int r = 0; r < kTile; ++r) StoreBytes(out + r * kPanel, sums[r]);
}

template <int kEncoding>
void Many(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, int64_t rows, float* out) {
  __builtin_memset(out, 0, static_cast<size_t>((rows + kTileRows - 1) / kTileRows * kTileRows * kPanel) * sizeof(float));
  Panel<kEncoding> panel;
  for (int64_t lane = 0; lane < n; lane += kLanes) {
    for (int64_t begin = 0; begin < w.k; begin += kDepth) {
      const int64_t depth = w.k - begin < kDepth ? w.k - begin : kDepth;
      panel.Load({w.blocks + lane * w.stride, w.stride, w.k}, n - lane < kLanes ? n - lane : kLanes, begin, depth);
      for (int64_t r = 0; r < rows; r += kTile) Tile(panel, x, first + r, begin, depth, out + r * kPanel + lane);
    }
  }
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

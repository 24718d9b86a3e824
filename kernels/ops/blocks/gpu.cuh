// The ops on GGUF's blocks, element by element: products by a warp for each row of weights and some
// rows of x; floats by a thread each. Encodings are numbers of opwire::Encoding.
#include "kernels/ops/blocks/gpu_params.h"
#include "kernels/ops/gpu/device.cuh"

namespace opw::blocks {

inline constexpr int kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 4, kQ6_K = 5;

OPW_DEVICE constexpr int ElementsOf(int encoding) { return encoding == kQ6_K ? 256 : 32; }
OPW_DEVICE constexpr int BytesOf(int encoding) {
  return encoding == kQ4_0 ? 18 : encoding == kQ4_1 ? 20 : encoding == kQ8_0 ? 34 : 210;
}

OPW_DEVICE float HalfAt(const u8* p) { return ToFloat(f16{static_cast<u16>(p[0] | p[1] << 8)}); }
OPW_DEVICE i32 NibbleAt(const u8* p, int i) {
  return p[i % 16] >> (i < 16 ? 0 : 4) & 15;
}  // of 32 in 16 bytes

// Element k of a row, in f32 or f64.
template <int kEncoding, typename C>
OPW_DEVICE C ElementOf(const u8* row, i64 k) {
  const u8* const block = row + k / ElementsOf(kEncoding) * BytesOf(kEncoding);
  const int i = static_cast<int>(k % ElementsOf(kEncoding));
  if constexpr (kEncoding == kQ6_K) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const i32 low = block[64 * half + quarter % 2 * 32 + at] >> quarter / 2 * 4 & 15,
              high = block[128 + 32 * half + at] >> 2 * quarter & 3;
    return C(HalfAt(block + 208)) *
           C(static_cast<i8>(block[192 + i / 16]) * ((low | high << 4) - 32));
  } else {
    const C scale = HalfAt(block);
    if constexpr (kEncoding == kQ4_0)
      return scale * C(NibbleAt(block + 2, i) - 8);
    else if constexpr (kEncoding == kQ4_1)
      return scale * C(NibbleAt(block + 4, i)) + C(HalfAt(block + 2));
    else
      return scale * C(static_cast<i8>(block[2 + i]));
  }
}

// blockIdx.y: rows of x, in a loop.
template <typename T, int kEncoding>
OPW_DEVICE void Linear(const LinearParams& p) {
  using C = ComputeOf<T>;
  const i64 warps = blockDim.x / OPW_WARP, bytes = p.k / ElementsOf(kEncoding) * BytesOf(kEncoding);
  for (i64 i0 = static_cast<i64>(blockIdx.y) * kRows; i0 < p.m;
       i0 += static_cast<i64>(gridDim.y) * kRows) {
    for (i64 j = static_cast<i64>(blockIdx.x) * warps + Warp(); j < p.n;
         j += static_cast<i64>(gridDim.x) * warps) {
      C sums[kRows] = {};
      for (i64 k = Lane(); k < p.k; k += OPW_WARP) {
        const C w = ElementOf<kEncoding, C>(static_cast<const u8*>(p.weight) + j * bytes, k);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (i0 + r < p.m) sums[r] += Load(static_cast<const T*>(p.x)[(i0 + r) * p.k + k]) * w;
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        C sum = WarpReduce(sums[r], Sum());
        if (p.bias != nullptr) sum += Load(static_cast<const T*>(p.bias)[j]);
        if (Lane() == 0 && i0 + r < p.m) static_cast<T*>(p.y)[(i0 + r) * p.n + j] = Store<T>(sum);
      }
    }
  }
}

// I: the index's type.
template <typename T, int kEncoding, typename I>
OPW_DEVICE void Floats(const FloatsParams& p) {
  using C = ComputeOf<T>;
  const i64 bytes = p.k / ElementsOf(kEncoding) * BytesOf(kEncoding);
  for (i64 i = Index(); i < p.count * p.k; i += Stride()) {
    const i64 row = i / p.k, k = i % p.k;
    const i64 at = p.index == nullptr
                       ? row
                       : WrapIndex(LoadIndex(static_cast<const I*>(p.index) + row), p.extent);
    if (at < 0 && k == 0) ReportOutOfRange(p.reporter, 1, row);
    static_cast<T*>(p.y)[i] = Store<T>(
        at < 0 ? C(0) : ElementOf<kEncoding, C>(static_cast<const u8*>(p.x) + at * bytes, k));
  }
}

}  // namespace opw::blocks

// Moving elements: rows by index, single elements by index, planes transposed. U is an unsigned integer of an element's size, I the index's type.
#include "kernels/ops/gpu/device.cuh"
#include "kernels/ops/shape/gpu_params.h"

namespace opw::shape {

// A row of y, or its part, from row `at` of x; zeros where that is none.
template <typename U, int kItems>
OPW_DEVICE void MovePart(const RowsParams& p, i64 outer, i64 row, i64 at, i64 chunk) {
  const i64 begin = chunk * kItems, left = p.inner - begin;
  U* const y = static_cast<U*>(p.y) + (outer * p.count + row) * p.inner + begin;
  const U* const x = static_cast<const U*>(p.x) + (outer * p.extent + (at < 0 ? 0 : at)) * p.inner + begin;
  Vector<U, kItems> v{};
  if (at >= 0) v = left >= kItems && Aligned<U, kItems>(x) ? LoadVector<U, kItems>(x) : LoadSome<U, kItems>(x, left);
  if (left >= kItems && Aligned<U, kItems>(y)) StoreVector(y, v);
  else StoreSome(y, v, left);
}

// 256 threads, one part each.
template <typename U, typename I, int kItems>
OPW_DEVICE void SelectRows(const RowsParams& p) {
  const i64 parts = p.outer * p.count * p.chunks;
  for (i64 part = Index(); part < parts; part += Stride()) {
    const i64 chunk = part % p.chunks, rows = part / p.chunks, row = rows % p.count;
    const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + row), p.extent);
    if (at < 0) ReportOutOfRange(p.reporter, 1, row);
    MovePart<U, kItems>(p, rows / p.count, row, at, chunk);
  }
}

template <typename U, typename I, int kItems>
OPW_DEVICE void SliceRows(const RowsParams& p) {
  const i64 parts = p.outer * p.count * p.chunks;
  const i64 first = WrapIndex(LoadIndex(static_cast<const I*>(p.index)), p.extent);
  for (i64 part = Index(); part < parts; part += Stride()) {
    const i64 chunk = part % p.chunks, rows = part / p.chunks, row = rows % p.count;
    // first + row * step < extent, without overflow.
    const bool inside = first >= 0 && row <= (p.extent - 1 - first) / p.step;
    if (!inside) ReportOutOfRange(p.reporter, 1, 0);
    MovePart<U, kItems>(p, rows / p.count, row, inside ? first + row * p.step : -1, chunk);
  }
}

template <typename U, typename I>
OPW_DEVICE void Gather(const GatherParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + i), p.extent);
    i64 offset[1];
    OffsetsAt<true>(p.axes, i, offset);
    if (at < 0) ReportOutOfRange(p.reporter, 1, i);
    static_cast<U*>(p.y)[i] = at < 0 ? U(0) : static_cast<const U*>(p.x)[offset[0] + at * p.stride];
  }
}

// A thread a column, so that sums are made in order of src.
template <typename T, typename I>
OPW_DEVICE void ScatterColumns(const ScatterParams& p) {
  using C = ComputeOf<T>;
  C* const sums = static_cast<C*>(p.sums);
  for (i64 column = Index(); column < p.columns; column += Stride()) {
    i64 offsets[3];
    OffsetsAt<true>(p.axes, column, offsets);
    for (i64 l = 0; l < p.length; ++l) {
      const i64 from = offsets[0] + l * p.index_stride;
      const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + from), p.extent);
      if (at < 0) {
        ReportOutOfRange(p.reporter, 1, from);
        continue;
      }
      C& sum = sums[offsets[2] + at * p.stride];
      const C value = Load(static_cast<const T*>(p.src)[offsets[1] + l * p.src_stride]);
      if constexpr (kIsFloat<C>) sum = sum + value;
      else sum = static_cast<C>(static_cast<u64>(sum) + static_cast<u64>(value));
    }
  }
}

template <typename T>
OPW_DEVICE void Widen(const ConvertParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) static_cast<ComputeOf<T>*>(p.y)[i] = Load(static_cast<const T*>(p.x)[i]);
}
template <typename T>
OPW_DEVICE void Narrow(const ConvertParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) static_cast<T*>(p.y)[i] = Store<T>(static_cast<const ComputeOf<T>*>(p.x)[i]);
}

template <typename U, typename I>
OPW_DEVICE void Choose(const ChooseParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.choice) + i), p.count);
    if (at < 0 && p.first == 0) {
      ReportOutOfRange(p.reporter, 0, i);
      static_cast<U*>(p.y)[i] = U(0);
    }
    if (at >= p.first && at < p.first + p.here) static_cast<U*>(p.y)[i] = static_cast<const U*>(p.xs[at - p.first])[i];
  }
}

template <typename T, typename I>
OPW_DEVICE void OneHot(const OneHotParams& p) {
  for (i64 i = Index(); i < p.rows * p.classes; i += Stride()) {
    const i64 row = i / p.classes, k = i % p.classes;
    const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.index) + row), p.classes);
    if (at < 0) ReportOutOfRange(p.reporter, 0, row);
    static_cast<T*>(p.y)[i] = Store<T>(k == at ? 1.0f : 0.0f);
  }
}

// Tiles of kTile x kTile, 256 threads. blockIdx.x: along x's columns, y: along its rows, z: batches.
template <typename U>
inline constexpr int kTile = sizeof(U) == 8 ? 32 : 64;

// kWhole: the tile has all its rows and columns.
template <bool kWhole, typename U>
OPW_DEVICE void TransposeTile(const TransposeParams& p, const U* x, U* y, i64 i0, i64 j0) {
  constexpr int kSide = kTile<U>, kRows = kSide / 8, kParts = kSide / 32;
  constexpr int kPad = sizeof(U) < 4 ? 4 / static_cast<int>(sizeof(U)) : 1;  // a column's elements lie in banks of their own
  __shared__ U tile[kSide][kSide + kPad];
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) / 32;
  const int rows = kWhole || p.rows - i0 > kSide ? kSide : static_cast<int>(p.rows - i0);
  const int columns = kWhole || p.columns - j0 > kSide ? kSide : static_cast<int>(p.columns - j0);
  const U* from = x + (i0 + first) * p.x_row + j0 + lane;
  U v[kRows][kParts];
#pragma unroll
  for (int u = 0; u < kRows; ++u, from += 8 * p.x_row) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) v[u][part] = first + 8 * u < rows && lane + 32 * part < columns ? from[32 * part] : U(0);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) tile[first + 8 * u][lane + 32 * part] = v[u][part];
  }
  __syncthreads();
  U* to = y + (j0 + first) * p.y_column + i0;
#pragma unroll
  for (int u = 0; u < kRows; ++u, to += 8 * p.y_column) {
    const int c = first + 8 * u;
    if (c >= columns) break;
    if constexpr (sizeof(U) == 2) {
      // By words: of a column that begins in the middle of one, the first element and the last are alone.
      const int lead = static_cast<int>(reinterpret_cast<u64>(to) >> 1 & 1), r = 2 * lane + lead;
      if (r + 1 < rows) *reinterpret_cast<u32*>(to + r) = tile[r][c] | static_cast<u32>(tile[r + 1][c]) << 16;
      if (lane == 0 && lead == 1) to[0] = tile[0][c];
      if (lane == 1 && (rows - lead) % 2 == 1) to[rows - 1] = tile[rows - 1][c];
    } else {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int r = lane + 32 * part;
        if (r < rows) to[r] = tile[r][c];
      }
    }
  }
  __syncthreads();
}

// Where each row of both tensors begins at 16 bytes and is whole vectors: a thread reads 8 columns of two rows and writes 8 rows of two columns. Taller
// tiles, with more loads a thread, were slower.
OPW_DEVICE void TransposeVectors(const TransposeParams& p, const u16* x, u16* y, i64 i0, i64 j0) {
  // By column of x, its rows by pairs: in groups of four, and those in an order in which neither writes nor reads of a warp meet in a bank.
  __shared__ Quad tile[64][8];
  const int part = static_cast<int>(threadIdx.x) % 8, pair = static_cast<int>(threadIdx.x) / 8;
  const i64 i = i0 + 2 * pair, j = j0 + 8 * part;
  Quad upper{}, lower{};
  if (i < p.rows && j < p.columns) {
    const u16* const from = x + i * p.x_row + j;
    upper = *reinterpret_cast<const Quad*>(from);
    lower = *reinterpret_cast<const Quad*>(from + p.x_row);
  }
  const u32 a[4] = {upper.x, upper.y, upper.z, upper.w}, b[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    reinterpret_cast<u32*>(&tile[8 * part + 2 * k][pair / 4 ^ part])[pair % 4] = (a[k] & 0xffffu) | b[k] << 16;
    reinterpret_cast<u32*>(&tile[8 * part + 2 * k + 1][pair / 4 ^ part])[pair % 4] = a[k] >> 16 | (b[k] & 0xffff0000u);
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int c = pair + 32 * h;
    if (j0 + c < p.columns && i0 + 8 * part < p.rows) *reinterpret_cast<Quad*>(y + (j0 + c) * p.y_column + i0 + 8 * part) = tile[c][part ^ c / 8];
  }
  __syncthreads();
}

template <typename U>
OPW_DEVICE void Transpose(const TransposeParams& p) {
  constexpr i64 kSide = kTile<U>;
  for (i64 b = blockIdx.z; b < p.batches; b += gridDim.z) {
    i64 at[2];
    OffsetsAt<true>(p.batch, b, at);
    const U* const x = static_cast<const U*>(p.x) + at[0];
    U* const y = static_cast<U*>(p.y) + at[1];
    const u64 addresses = reinterpret_cast<u64>(x) | reinterpret_cast<u64>(y);
    const bool vectors = sizeof(U) == 2 && (addresses & 15) == 0 && ((p.rows | p.columns | p.x_row | p.y_column) & 7) == 0;
    for (i64 i0 = static_cast<i64>(blockIdx.y) * kSide; i0 < p.rows; i0 += static_cast<i64>(gridDim.y) * kSide) {
      for (i64 j0 = static_cast<i64>(blockIdx.x) * kSide; j0 < p.columns; j0 += static_cast<i64>(gridDim.x) * kSide) {
        if constexpr (sizeof(U) == 2) {
          if (vectors) {
            TransposeVectors(p, x, y, i0, j0);
            continue;
          }
        }
        if (i0 + kSide <= p.rows && j0 + kSide <= p.columns) TransposeTile<true>(p, x, y, i0, j0);
        else TransposeTile<false>(p, x, y, i0, j0);
      }
    }
  }
}

}  // namespace opw::shape

// Moving elements: rows by index, single elements by index, planes transposed. U is an unsigned
// integer of an element's size, I the index's type.
#include "kernels/ops/gpu/device.cuh"
#include "kernels/ops/shape/gpu_params.h"

namespace opw::shape {

// Copies kItems elements, or the `left` remaining ones; zeros if `has` is false.
template <typename U, int kItems>
OPW_DEVICE void CopyPart(U* to, const U* from, i64 left, bool has = true) {
  Vector<U, kItems> v{};
  if (has)
    v = left >= kItems && Aligned<U, kItems>(from) ? LoadVector<U, kItems>(from)
                                                   : LoadSome<U, kItems>(from, left);
  if (left >= kItems && Aligned<U, kItems>(to))
    StoreVector(to, v);
  else
    StoreSome(to, v, left);
}

// Writes a row of y, or its part, from row `at` of x; zeros if `at` is negative.
template <typename U, int kItems>
OPW_DEVICE void MovePart(const RowsParams& p, i64 outer, i64 row, i64 at, i64 chunk) {
  const i64 begin = chunk * kItems;
  CopyPart<U, kItems>(
      static_cast<U*>(p.y) + (outer * p.count + row) * p.inner + begin,
      static_cast<const U*>(p.x) + (outer * p.extent + (at < 0 ? 0 : at)) * p.inner + begin,
      p.inner - begin, at >= 0);
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
OPW_DEVICE void UpdateSlice(const UpdateParams& p) {
  i64 base = 0;
  bool inside = true;
  for (int a = 0; a < p.rank; ++a) {
    const i64 first = WrapIndex(LoadIndex(static_cast<const I*>(p.starts) + a), p.extents[a]);
    // first + (length - 1) * step < extent, without overflow.
    if (inside && (first < 0 || p.lengths[a] - 1 > (p.extents[a] - 1 - first) / p.steps[a])) {
      ReportOutOfRange(p.reporter, 2, a);
      inside = false;
    }
    base += first * p.strides[a];
  }
  if (!inside) return;
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    i64 offset[1];
    OffsetsAt<true>(p.axes, i, offset);
    static_cast<U*>(p.y)[base + offset[0]] = static_cast<const U*>(p.v)[i];
  }
}

// Fills a hash table of the places that index names, by linear probing. It has the last put of each
// place.
template <typename I>
OPW_DEVICE void FindPutPlaces(const PutParams& p) {
  for (i64 put = Index(); put < p.puts; put += Stride()) {
    i64 place = 0;
    for (int a = 0; a < p.axes && place >= 0; ++a) {
      const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.index[a]) + put), p.extents[a]);
      if (at < 0) ReportOutOfRange(p.reporter, 2 + a, put);
      place = at < 0 ? -1 : place * p.extents[a] + at;
    }
    if (place < 0) {
      *static_cast<volatile unsigned*>(p.outside) = 1;
      continue;
    }
    const u64 key = static_cast<u64>(place) + 1;
    u64 slot = static_cast<u64>(place);
    if (p.mask != 0) {
      slot = (slot * 0x9e3779b97f4a7c15ull >> 32) & p.mask;
      for (;; slot = (slot + 1) & p.mask) {
        const u64 held = atomicCAS(&p.keys[slot], 0ull, key);
        if (held == 0 || held == key) break;
      }
    } else {
      p.keys[slot] = key;
    }
    atomicMax(&p.last[slot], static_cast<u64>(put) + 1);
    p.slot_of[put] = static_cast<i64>(slot);
  }
}

// Runs after FindPutPlaces. 256 threads, one part of a row each.
template <typename U, int kItems>
OPW_DEVICE void PutRows(const PutParams& p) {
  if (*p.outside != 0) return;
  const i64 parts = p.outer * p.puts * p.chunks;
  for (i64 part = Index(); part < parts; part += Stride()) {
    const i64 chunk = part % p.chunks, rows = part / p.chunks, put = rows % p.puts,
              outer = rows / p.puts;
    const i64 slot = p.slot_of[put];
    if (p.last[slot] != static_cast<u64>(put) + 1) continue;
    const i64 begin = chunk * kItems;
    CopyPart<U, kItems>(static_cast<U*>(p.y) +
                            (outer * p.extent + static_cast<i64>(p.keys[slot]) - 1) * p.inner +
                            begin,
                        static_cast<const U*>(p.src) + rows * p.inner + begin, p.inner - begin);
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

// One thread per column, so that terms are added in order of src.
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
      if constexpr (kIsFloat<C>)
        sum = sum + value;
      else
        sum = static_cast<C>(static_cast<u64>(sum) + static_cast<u64>(value));
    }
  }
}

template <typename T>
OPW_DEVICE void Widen(const ConvertParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride())
    static_cast<ComputeOf<T>*>(p.y)[i] = Load(static_cast<const T*>(p.x)[i]);
}
template <typename T>
OPW_DEVICE void Narrow(const ConvertParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride())
    static_cast<T*>(p.y)[i] = Store<T>(static_cast<const ComputeOf<T>*>(p.x)[i]);
}

template <typename U, typename I>
OPW_DEVICE void Choose(const ChooseParams& p) {
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    const i64 at = WrapIndex(LoadIndex(static_cast<const I*>(p.choice) + i), p.count);
    if (at < 0 && p.first == 0) {
      ReportOutOfRange(p.reporter, 0, i);
      static_cast<U*>(p.y)[i] = U(0);
    }
    if (at >= p.first && at < p.first + p.here)
      static_cast<U*>(p.y)[i] = static_cast<const U*>(p.xs[at - p.first])[i];
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

// Tiles of kTile x kTile, for 256 threads.
template <typename U>
inline constexpr int kTile = sizeof(U) == 8 ? 32 : 64;

// kWhole: the tile has all its rows and columns.
template <bool kWhole, typename U>
OPW_DEVICE void TransposeTile(const TransposeParams& p, const U* x, U* y, i64 i0, i64 j0) {
  constexpr int kSide = kTile<U>, kRows = kSide / 8, kParts = kSide / 32;
  constexpr int kPad = sizeof(U) < 4 ? 4 / static_cast<int>(sizeof(U))
                                     : 1;  // a column's elements use different banks
  __shared__ U tile[kSide][kSide + kPad];
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) / 32;
  const int rows = kWhole || p.rows - i0 > kSide ? kSide : static_cast<int>(p.rows - i0);
  const int columns = kWhole || p.columns - j0 > kSide ? kSide : static_cast<int>(p.columns - j0);
  const U* from = x + (i0 + first) * p.x_row + j0 + lane;
  U v[kRows][kParts];
#pragma unroll
  for (int u = 0; u < kRows; ++u, from += 8 * p.x_row) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      v[u][part] = first + 8 * u < rows && lane + 32 * part < columns ? from[32 * part] : U(0);
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
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int r = lane + 32 * part;
      if (r < rows) to[r] = tile[r][c];
    }
  }
  __syncthreads();
}

// 64 rows and 128 columns, if each row of both tensors begins at a multiple of 16 bytes and is
// whole vectors. A thread reads 8 columns of two rows, twice, and writes 8 rows of two columns.
// More loads per thread were slower, and so were taller tiles.
OPW_DEVICE void TransposeVectors(const TransposeParams& p, const u16* x, u16* y, i64 i0, i64 j0) {
  // By column of x, its rows in pairs. Pairs are in groups of four, in an order in which neither
  // writes nor reads of a warp have bank conflicts.
  __shared__ Quad tile[2][64][8];
  const int part = static_cast<int>(threadIdx.x) % 8, pair = static_cast<int>(threadIdx.x) / 8;
  const i64 i = i0 + 2 * pair;
  Quad upper[2]{}, lower[2]{};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const i64 j = j0 + 64 * side + 8 * part;
    if (i < p.rows && j < p.columns) {
      const u16* const from = x + i * p.x_row + j;
      upper[side] = *reinterpret_cast<const Quad*>(from);
      lower[side] = *reinterpret_cast<const Quad*>(from + p.x_row);
    }
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const u32 a[4] = {upper[side].x, upper[side].y, upper[side].z, upper[side].w},
              b[4] = {lower[side].x, lower[side].y, lower[side].z, lower[side].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      reinterpret_cast<u32*>(&tile[side][8 * part + 2 * k][pair / 4 ^ part])[pair % 4] =
          (a[k] & 0xffffu) | b[k] << 16;
      reinterpret_cast<u32*>(&tile[side][8 * part + 2 * k + 1][pair / 4 ^ part])[pair % 4] =
          a[k] >> 16 | (b[k] & 0xffff0000u);
    }
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 4; ++h) {
    const int c = pair + 32 * (h % 2);
    const i64 j = j0 + 64 * (h / 2) + c;
    if (j < p.columns && i0 + 8 * part < p.rows)
      *reinterpret_cast<Quad*>(y + j * p.y_column + i0 + 8 * part) = tile[h / 2][c][part ^ c / 8];
  }
  __syncthreads();
}

// Blocks of 256 threads walk along x's rows first, so that they write neighbouring memory. x: tiles
// along its rows, y: along its columns, z: batches.
template <typename U>
OPW_DEVICE void Transpose(const TransposeParams& p) {
  constexpr i64 kSide = kTile<U>, kWide = sizeof(U) == 2 ? 2 * kSide : kSide;
  for (i64 b = blockIdx.z; b < p.batches; b += gridDim.z) {
    i64 at[2];
    OffsetsAt<true>(p.batch, b, at);
    const U* const x = static_cast<const U*>(p.x) + at[0];
    U* const y = static_cast<U*>(p.y) + at[1];
    const u64 addresses = reinterpret_cast<u64>(x) | reinterpret_cast<u64>(y);
    const bool vectors = sizeof(U) == 2 && (addresses & 15) == 0 &&
                         ((p.rows | p.columns | p.x_row | p.y_column) & 7) == 0;
    for (i64 j0 = static_cast<i64>(blockIdx.y) * kWide; j0 < p.columns;
         j0 += static_cast<i64>(gridDim.y) * kWide) {
      for (i64 i0 = static_cast<i64>(blockIdx.x) * kSide; i0 < p.rows;
           i0 += static_cast<i64>(gridDim.x) * kSide) {
        if constexpr (sizeof(U) == 2) {
          if (vectors) {
            TransposeVectors(p, x, y, i0, j0);
            continue;
          }
        }
        for (i64 j = j0; j < j0 + kWide && j < p.columns; j += kSide) {
          if (i0 + kSide <= p.rows && j + kSide <= p.columns)
            TransposeTile<true>(p, x, y, i0, j);
          else
            TransposeTile<false>(p, x, y, i0, j);
        }
      }
    }
  }
}

// For 16-bit elements and rows with any alignment. A tile's rows are copied unchanged, as whole
// 16-byte frames. The tile has more rows than its height, so that each column has whole sectors of
// 32 bytes. Then threads gather 8 rows of a column. The alignment of frames and sectors repeats
// every 16 rows and columns, so a thread computes its positions once. Blocks as for Transpose.
template <int kHeight, int kWidth>
OPW_DEVICE void TransposeFrames(const TransposeParams& p, const u16* x, u16* y, i64 i0, i64 j0) {
  constexpr int kMore = 16, kPitch = kWidth + 16, kParts = kPitch / 8, kRowStep = 256 / kParts,
                kGroups = kHeight / 8, kColumnStep = 256 / kGroups;
  static_assert(kRowStep % 16 == 0 && kColumnStep % 16 == 0 && kWidth % 16 == 0 &&
                kGroups % 8 == 0);
  // After eight rows a frame is 16 bytes further, in other banks.
  __shared__ Quad tile[((kHeight + kMore) * kPitch + (kHeight + kMore) / 8 * 8) / 8];
  u16* const held = reinterpret_cast<u16*>(tile);
  const auto place = [](u32 row) { return row * kPitch + row / 8 * 8; };
  const int rows = p.rows - i0 < kHeight + kMore ? static_cast<int>(p.rows - i0) : kHeight + kMore;
  const int columns = p.columns - j0 < kWidth ? static_cast<int>(p.columns - j0) : kWidth;
  const u32 t = threadIdx.x;
  {
    const int part = static_cast<int>(t % kParts), first = static_cast<int>(t / kParts);
    const u16* const row = x + (i0 + first) * p.x_row + j0;
    // The position of the frame's vector, relative to j0, and whether all its elements are in x's
    // row. If not, they are copied one by one.
    const int begin = part * 8 - Phase(row) / 2;
    const bool whole = j0 + begin >= 0 && j0 + begin + 8 <= p.columns;
    const u16* from = row + begin;
    u16* to = held + place(static_cast<u32>(first)) + part * 8;
    const i64 step = kRowStep * p.x_row;
    if (begin < columns && whole) {
#pragma unroll
      for (int r = 0; r < kHeight + kMore; r += kRowStep, from += step) {
        if (first + r < rows) CopyAsync16(to + place(r), from);
      }
    } else if (begin < columns) {
#pragma unroll 1
      for (int r = first; r < rows; r += kRowStep, from += step, to += place(kRowStep)) {
        for (int k = 0; k < 8; ++k) {
          if (begin + k >= 0 && begin + k < columns) to[k] = from[k];
        }
      }
    }
  }
  WaitForCopies();
  __syncthreads();
  // 8 lanes have 64 rows of a column, and a warp 4 columns.
  constexpr u32 kWarps = kGroups / 8;  // of a column
  const u32 lane = t % 32, warp = t / 32, c0 = lane / 8 + warp / kWarps * 4;
  u16* to = y + (j0 + c0) * p.y_column + i0;
  const u32 at =
      (16 - static_cast<u32>(Phase<32>(to)) / 2) % 16 + 8 * (lane % 8 + warp % kWarps * 8);
  u32 from[8];  // offsets in rows at, at + 1, ... of the elements of column c0: opaque, as
                // compilers compute them again for each store
  const u32 address = static_cast<u32>(reinterpret_cast<u64>(x + i0 * p.x_row + j0)),
            row_bytes = static_cast<u32>(p.x_row) * 2;
#pragma unroll
  for (u32 k = 0; k < 8; ++k)
    from[k] = Opaque(place(at + k) + (address + (at + k) * row_bytes) % 16 / 2 + c0);
  to += at;
  const int left = rows - static_cast<int>(at);
  if (left >= 8) {
#pragma unroll
    for (int c = 0; c < kWidth; c += kColumnStep, to += kColumnStep * p.y_column) {
      u32 words[4];
      if (static_cast<int>(c0) + c < columns) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          words[k] = held[from[2 * k] + c] | static_cast<u32>(held[from[2 * k + 1] + c]) << 16;
        StoreWhole(to, {words[0], words[1], words[2], words[3]});
      }
    }
  } else if (left > 0) {
#pragma unroll 1
    for (int c = 0; static_cast<int>(c0) + c < columns;
         c += kColumnStep, to += kColumnStep * p.y_column) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if (k < left) to[k] = held[from[k] + c];
      }
    }
  }
  if (i0 == 0) {  // elements before each column's first sector
    for (int c = static_cast<int>(t); c < columns; c += 256) {
      u16* const column = y + (j0 + c) * p.y_column;
      const int before = (16 - (Phase<32>(column) >> 1)) % 16;
#pragma unroll 1
      for (int r = 0; r < before && r < rows; ++r)
        column[r] = held[place(static_cast<u32>(r)) + Phase(x + r * p.x_row + j0) / 2 + c];
    }
  }
  __syncthreads();
}
template <int kHeight, int kWidth>
OPW_DEVICE void TransposeByFrames(const TransposeParams& p) {
  for (i64 b = blockIdx.z; b < p.batches; b += gridDim.z) {
    i64 at[2];
    OffsetsAt<true>(p.batch, b, at);
    const u16* const x = static_cast<const u16*>(p.x) + at[0];
    u16* const y = static_cast<u16*>(p.y) + at[1];
    for (i64 j0 = static_cast<i64>(blockIdx.y) * kWidth; j0 < p.columns;
         j0 += static_cast<i64>(gridDim.y) * kWidth) {
      for (i64 i0 = static_cast<i64>(blockIdx.x) * kHeight; i0 < p.rows;
           i0 += static_cast<i64>(gridDim.x) * kHeight)
        TransposeFrames<kHeight, kWidth>(p, x, y, i0, j0);
    }
  }
}

}  // namespace opw::shape

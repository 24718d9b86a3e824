// How a function of contiguous elements serves tensors of any shape and strides: opw_kernel's
// functions for fused code, interpreted or compiled. Part of this program and of every compiled
// unit, so it uses no library; what one prepared the other may run.
#ifndef OPWIRE_KERNELS_FUSED_DRIVER_INC_H_
#define OPWIRE_KERNELS_FUSED_DRIVER_INC_H_

#include <stdint.h>

#include "kernels/abi.h"
#include "kernels/fused/limits.h"
#include "kernels/fused/rows.h"
#include "kernels/fused/turn.inc.h"

namespace opwire::fused {
namespace {

constexpr int64_t kGrain = 16384;  // elements a range
constexpr int64_t kPacked =
    512;  // elements that are packed at once, at the most, and of a tile's row
constexpr int64_t kShortRow = 256;                  // below it rows are packed together
constexpr int64_t kStreamBytes = int64_t{8} << 20;  // from this size on an output is streamed
constexpr int64_t kTileBytes = int64_t{64} << 10;   // of all tensors that are turned, a tile
constexpr int64_t kLeastTileRow = 64;               // elements: shorter rows are packed

// What `prepare` makes of the shapes: the outputs' axes, neighbours merged where every tensor
// allows it. Inputs come first.
struct Layout {
  int32_t inputs, tensors, rank;
  bool direct;  // along the last axis each input is contiguous or repeated, each output contiguous
  bool stream;
  bool far;               // an input is as large as outputs that are streamed
  uint32_t repeated;      // along the last axis
  uint32_t constant;      // along all axes
  uint32_t dense;         // without gaps, in the order of the elements
  uint32_t periodic;      // inputs that repeat after `period` elements, a part of `packed`
  int64_t packed, grain;  // elements that are packed at once, and those of a range of such
  // In tiles: the last axis but one is the one that some tensors are contiguous along, which a tile
  // holds turned; the others are so along the last.
  uint32_t turned;
  int64_t tile_rows, tile_row;  // a tile's extents along these two axes; 0: no tiles
  int64_t elements;
  int64_t bytes[kMaxTensors];  // an element
  int64_t period[kMaxTensors];
  int64_t shape[OPW_MAX_RANK];
  int64_t strides[kMaxTensors][OPW_MAX_RANK];  // in bytes
};

constexpr int64_t kBytesOf[] = {0, 8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 8, 4, 2, 1, 1};

inline const opw_tensor& TensorOf(const Layout& l, const opw_call* c, int t) {
  return t < l.inputs ? c->operands[t] : c->results[t - l.inputs];
}

// One more axis further in, merged with the one before where every tensor allows it; `strides` in
// bytes.
inline void AddAxis(Layout& l, int64_t extent, const int64_t* strides) {
  bool merges = l.rank > 0;
  for (int t = 0; t < l.tensors; ++t)
    merges = merges && l.strides[t][l.rank - 1] == strides[t] * extent;
  if (merges)
    l.shape[l.rank - 1] *= extent;
  else
    l.shape[l.rank++] = extent;
  for (int t = 0; t < l.tensors; ++t) l.strides[t][l.rank - 1] = strides[t];
}

inline void SetAxes(Layout& l, const opw_call* c) {
  const opw_tensor& y = c->results[0];
  for (int a = 0; a < y.rank; ++a) {
    if (y.shape[a] == 1) continue;
    int64_t strides[kMaxTensors];
    for (int t = 0; t < l.tensors; ++t) {
      const opw_tensor& x = TensorOf(l, c, t);
      const int axis = a - (y.rank - x.rank);
      strides[t] = axis < 0 || x.shape[axis] == 1 ? 0 : x.strides[axis] * l.bytes[t];
    }
    AddAxis(l, y.shape[a], strides);
  }
  if (l.rank > 0) return;
  l.rank = l.shape[0] = 1;  // one element
  for (int t = 0; t < l.tensors; ++t) l.strides[t][0] = t < l.inputs ? 0 : l.bytes[t];
}

// The greatest number that divides both.
inline int64_t Divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Whether a row of t is read or written where it lies.
inline bool LiesAlong(const Layout& l, int t, int axis) {
  return l.strides[t][axis] == l.bytes[t] || (t < l.inputs && l.strides[t][axis] == 0);
}

inline void SwapAxes(Layout& l, int a, int b) {
  const auto swap = [&](int64_t* of) {
    const int64_t held = of[a];
    of[a] = of[b];
    of[b] = held;
  };
  swap(l.shape);
  for (int t = 0; t < l.tensors; ++t) swap(l.strides[t]);
}

// Chooses tiles where tensors that the last axis steps through lie along another one.
inline void SetTiles(Layout& l) {
  const int last = l.rank - 1;
  int across = -1;
  int64_t most = 0;
  for (int a = 0; a < last; ++a) {
    int64_t bytes = 0;  // an element, of those that lie along it and not along the last
    for (int t = 0; t < l.tensors; ++t)
      bytes += l.strides[t][a] == l.bytes[t] && !LiesAlong(l, t, last) ? l.bytes[t] : 0;
    if (bytes > most) {
      most = bytes;
      across = a;
    }
  }
  if (across < 0) return;
  // Rows are the last axis, or the other where that is too short.
  const bool swaps = l.shape[last] < kLeastTileRow;
  if (l.shape[swaps ? across : last] < kLeastTileRow) return;
  if (across != last - 1) SwapAxes(l, across, last - 1);
  if (swaps) SwapAxes(l, last - 1, last);
  int64_t turned = 0, bytes = 0;  // how many, and an element of all
  for (int t = 0; t < l.tensors; ++t) {
    if (LiesAlong(l, t, last)) continue;
    l.turned |= 1u << t;
    ++turned;
    bytes += l.bytes[t];
  }
  // A line of each, and rows as long as the tile then allows; each begins a line further on, so
  // that they share none of a cache. None is turned where all lie along what was not the last axis.
  const auto row_of = [&](int64_t rows) {
    return turned > 0 ? (kTileBytes / rows - 64 * turned) / bytes : kPacked;
  };
  int64_t rows = turned > 0 ? 64 * turned / bytes : 0;
  while (rows > 8 && row_of(rows) < kLeastTileRow) rows /= 2;
  rows = rows < 8 ? 8 : rows;
  const int64_t row = row_of(rows) < kPacked ? row_of(rows) : kPacked;
  l.tile_rows = rows < l.shape[last - 1] ? rows : l.shape[last - 1];
  l.tile_row = row >= kLeastTileRow ? row / kLeastTileRow * kLeastTileRow : row;
}
// Whether whole lines of each output are written.
inline bool TilesStream(const Layout& l) {
  for (int t = l.inputs; t < l.tensors; ++t) {
    if ((l.turned >> t & 1) != 0 || l.elements * l.bytes[t] < kStreamBytes ||
        l.tile_row * l.bytes[t] % 64 != 0)
      return false;
    for (int a = 0; a < l.rank - 1; ++a) {
      if (l.strides[t][a] % 64 != 0) return false;
    }
  }
  return true;
}

inline int PrepareLayout(const opw_call* c, int inputs, int outputs, void** state) {
  Layout* const layout = static_cast<Layout*>(__builtin_malloc(sizeof(Layout)));
  if (layout == nullptr) return OPW_FAILED;
  __builtin_memset(layout, 0, sizeof(Layout));
  Layout& l = *layout;
  l.inputs = inputs;
  l.tensors = inputs + outputs;
  l.elements = c->results[0].elements;
  for (int t = 0; t < l.tensors; ++t) l.bytes[t] = kBytesOf[TensorOf(l, c, t).dtype];
  SetAxes(l, c);
  const int last = l.rank - 1;
  l.direct = last == 0 || l.shape[last] >= kShortRow;
  l.stream = l.direct && last == 0;
  int64_t common = 1;  // multiple of the periods
  for (int t = 0; t < l.tensors; ++t) {
    const int64_t stride = l.strides[t][last];
    const bool input = t < inputs;
    l.direct = l.direct && (stride == l.bytes[t] || (input && stride == 0));
    l.stream = l.stream && (input || l.elements * l.bytes[t] >= kStreamBytes);
    l.far = l.far || (input && stride == l.bytes[t] && l.elements * l.bytes[t] >= kStreamBytes);
    if (input && stride == 0) l.repeated |= 1u << t;
    bool constant = input;
    for (int a = 0; a < l.rank; ++a) constant = constant && l.strides[t][a] == 0;
    if (constant) l.constant |= 1u << t;
    bool dense = true;
    int64_t below = 1,
            period = 1;  // elements along the axes further in, and those after which t repeats
    for (int a = last; a >= 0; below *= l.shape[a--]) {
      dense = dense && l.strides[t][a] == below * l.bytes[t];
      if (l.strides[t][a] != 0) period = below * l.shape[a];
    }
    if (dense) l.dense |= 1u << t;
    if (!input || l.elements == 0 || period > kPacked) continue;
    const int64_t both = common / Divisor(common, period) * period;
    if (both > kPacked) continue;
    common = both;
    l.periodic |= 1u << t;
    l.period[t] = period;
  }
  l.packed = kPacked / common * common;
  l.grain = kGrain / l.packed * l.packed;
  if (!l.direct && l.elements > 0) SetTiles(l);
  if (l.tile_row > 0) l.stream = TilesStream(l);
  *state = layout;
  return OPW_OK;
}
inline void ReleaseLayout(void* state) { __builtin_free(state); }

// A position among the layout's rows, with each tensor's offset in bytes.
struct RowWalk {
  const Layout& l;
  int64_t index[OPW_MAX_RANK];
  int64_t offsets[kMaxTensors];

  RowWalk(const Layout& layout, int64_t row) : l(layout) {
    for (int t = 0; t < l.tensors; ++t) offsets[t] = 0;
    for (int a = l.rank - 2; a >= 0; --a) {
      index[a] = row % l.shape[a];
      row /= l.shape[a];
      for (int t = 0; t < l.tensors; ++t) offsets[t] += index[a] * l.strides[t][a];
    }
  }
  void Next() {
    for (int a = l.rank - 2; a >= 0; --a) {
      for (int t = 0; t < l.tensors; ++t) offsets[t] += l.strides[t][a];
      if (++index[a] < l.shape[a]) return;
      for (int t = 0; t < l.tensors; ++t) offsets[t] -= l.shape[a] * l.strides[t][a];
      index[a] = 0;
    }
  }
};

template <typename U>
inline void CopyStrided(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                        int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    __builtin_memcpy(to + i * to_stride, from + i * from_stride, sizeof(U));
}
inline void CopyElements(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                         int64_t n, int64_t bytes) {
  if (to_stride == bytes && from_stride == bytes) {
    __builtin_memcpy(to, from, static_cast<uint64_t>(n * bytes));
    return;
  }
  if (bytes == 8) return CopyStrided<uint64_t>(to, to_stride, from, from_stride, n);
  if (bytes == 4) return CopyStrided<uint32_t>(to, to_stride, from, from_stride, n);
  if (bytes == 2) return CopyStrided<uint16_t>(to, to_stride, from, from_stride, n);
  CopyStrided<uint8_t>(to, to_stride, from, from_stride, n);
}

// One run: its layout, its call and the function.
struct Job {
  const Layout& l;
  const opw_call* c;
  RowFunction function;
  int64_t part, parts;  // a row is called for in parts

  void Raise(uint32_t flags) const {
    if (flags != 0) c->runtime->raise(c->runtime, flags);
  }
  char* Data(int t) const { return static_cast<char*>(TensorOf(l, c, t).data); }
  void Point(Rows& rows, int t, char* data) const {
    if (t < l.inputs)
      rows.in[t] = data;
    else
      rows.out[t - l.inputs] = data;
  }
  bool Streams() const {
    bool stream = l.stream;
    for (int t = l.inputs; stream && t < l.tensors; ++t) {
      stream = (reinterpret_cast<uintptr_t>(Data(t)) & 63) == 0;
      for (int i = 0; i < l.inputs; ++i) stream = stream && Data(i) != Data(t);
    }
    return stream;
  }

  void Run(int64_t begin, int64_t end) const {
    if (l.tile_row > 0) return RunTiles(begin, end);
    if (l.direct) return RunDirect(begin, end);
    RunPacked(begin, end);
  }

  // Parts of rows, from where they are.
  void RunDirect(int64_t begin, int64_t end) const {
    const int last = l.rank - 1;
    Rows rows{c->context, c->attrs, 0, l.repeated, Streams(), l.far, {}, {}};
    RowWalk walk(l, begin / parts);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % parts * part;
      for (int t = 0; t < l.tensors; ++t)
        Point(rows, t, Data(t) + walk.offsets[t] + first * l.strides[t][last]);
      rows.n = part < l.shape[last] - first ? part : l.shape[last] - first;
      Raise(function(rows));
      if (unit % parts == parts - 1) walk.Next();
    }
  }

  // So many rows of n elements from where tensor t has them into its tile, and back.
  void Fetch(int t, const char* from, char* tile, int64_t row_bytes, int64_t rows,
             int64_t n) const {
    const int64_t across = l.strides[t][l.rank - 2], along = l.strides[t][l.rank - 1],
                  bytes = l.bytes[t];
    if (across == bytes) return Turn<true>(tile, row_bytes, from, along, rows, n, bytes);
    for (int64_t i = 0; i < rows; ++i)
      CopyElements(tile + i * row_bytes, bytes, from + i * across, along, n, bytes);
  }
  void PutBack(int t, char* to, const char* tile, int64_t row_bytes, int64_t rows,
               int64_t n) const {
    const int64_t across = l.strides[t][l.rank - 2], along = l.strides[t][l.rank - 1],
                  bytes = l.bytes[t];
    if (across == bytes) return Turn<false>(to, along, tile, row_bytes, n, rows, bytes);
    for (int64_t i = 0; i < rows; ++i)
      CopyElements(to + i * across, along, tile + i * row_bytes, bytes, n, bytes);
  }

  // Tiles, row by row, of which what lies along the columns is copied.
  void RunTiles(int64_t begin, int64_t end) const {
    const int last = l.rank - 1, across = last - 1;
    const int64_t down = (l.shape[across] - 1) / l.tile_rows + 1,
                  along = (l.shape[last] - 1) / l.tile_row + 1;
    alignas(64) char tiles[kTileBytes];
    Rows rows{c->context, c->attrs, 0, 0, Streams(), false, {}, {}};
    char* at[kMaxTensors];           // the tile's first element of each tensor
    char* held[kMaxTensors];         // of those that are turned its copy,
    int64_t row_bytes[kMaxTensors];  // whose rows are so far apart; of others the tensor's
    char* free = tiles;
    for (int t = 0; t < l.tensors; ++t) {
      const bool turned = (l.turned >> t & 1) != 0;
      if (t < l.inputs && !turned && l.strides[t][last] == 0) rows.repeated |= 1u << t;
      row_bytes[t] = turned ? l.tile_row * l.bytes[t] + 64 - l.tile_row * l.bytes[t] % 64
                            : l.strides[t][across];
      held[t] = free;
      if (turned) free += l.tile_rows * row_bytes[t];
    }
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t i = tile % down * l.tile_rows, j = tile / down % along * l.tile_row;
      const int64_t height = l.tile_rows < l.shape[across] - i ? l.tile_rows : l.shape[across] - i;
      rows.n = l.tile_row < l.shape[last] - j ? l.tile_row : l.shape[last] - j;
      for (int t = 0; t < l.tensors; ++t) {
        at[t] = Data(t) + i * l.strides[t][across] + j * l.strides[t][last];
        int64_t rest = tile / down / along;
        for (int a = across - 1; a >= 0; rest /= l.shape[a--])
          at[t] += rest % l.shape[a] * l.strides[t][a];
        if (t < l.inputs && (l.turned >> t & 1) != 0)
          Fetch(t, at[t], held[t], row_bytes[t], height, rows.n);
      }
      for (int64_t row = 0; row < height; ++row) {
        for (int t = 0; t < l.tensors; ++t)
          Point(rows, t, ((l.turned >> t & 1) != 0 ? held[t] : at[t]) + row * row_bytes[t]);
        Raise(function(rows));
      }
      for (int t = l.inputs; t < l.tensors; ++t) {
        if ((l.turned >> t & 1) != 0) PutBack(t, at[t], held[t], row_bytes[t], height, rows.n);
      }
    }
  }

  // Copies n elements from the walk's position and `column` in its row on between their place and
  // `block`, which is tensor t's.
  void Transfer(int t, RowWalk walk, int64_t column, int64_t n, char* block) const {
    const int last = l.rank - 1;
    const int64_t bytes = l.bytes[t], stride = l.strides[t][last];
    for (int64_t done = 0; done < n; column = 0, walk.Next()) {
      const int64_t rest = n - done, row = l.shape[last] - column, m = rest < row ? rest : row;
      char* const there = Data(t) + walk.offsets[t] + column * stride;
      if (t < l.inputs)
        CopyElements(block + done * bytes, bytes, there, stride, m, bytes);
      else
        CopyElements(there, stride, block + done * bytes, bytes, m, bytes);
      done += m;
    }
  }

  // The same of an input that is periodic, of which one period is fetched.
  void Repeat(int t, const RowWalk& walk, int64_t column, int64_t n, char* block) const {
    const int64_t bytes = n * l.bytes[t];
    int64_t held = l.period[t] * l.bytes[t];
    Transfer(t, walk, column, l.period[t] < n ? l.period[t] : n, block);
    for (; held < bytes; held *= 2)
      __builtin_memcpy(block + held, block,
                       static_cast<uint64_t>(held < bytes - held ? held : bytes - held));
  }

  // Elements through blocks, but for tensors that lie as blocks do.
  void RunPacked(int64_t begin, int64_t end) const {
    alignas(64) char blocks[kMaxTensors][kPacked * 8 + 64];  // not a power of two apart, so that
                                                             // they share no lines of a cache
    const int64_t extent = l.shape[l.rank - 1];
    Rows rows{c->context, c->attrs, 0, l.constant, false, false, {}, {}};
    for (int64_t at = begin; at < end; at += l.packed) {
      rows.n = end - at < l.packed ? end - at : l.packed;
      const RowWalk walk(l, at / extent);
      const int64_t column = at % extent;
      for (int t = 0; t < l.tensors; ++t) {
        const uint32_t bit = 1u << t;
        const bool constant = (l.constant & bit) != 0, dense = (l.dense & bit) != 0;
        Point(rows, t, constant ? Data(t) : dense ? Data(t) + at * l.bytes[t] : blocks[t]);
        if (t >= l.inputs || constant || dense) continue;
        if ((l.periodic & bit) == 0)
          Transfer(t, walk, column, rows.n, blocks[t]);
        else if (at == begin)
          Repeat(t, walk, column, rows.n,
                 blocks[t]);  // which is there for the blocks behind this one
      }
      Raise(function(rows));
      for (int t = l.inputs; t < l.tensors; ++t) {
        if ((l.dense & 1u << t) == 0) Transfer(t, walk, column, rows.n, blocks[t]);
      }
    }
  }
};

// How a layout's work is cut: into n tiles, parts of rows or elements, `grain` of them a range.
struct Cut {
  int64_t part, parts;  // of a row: elements, and how many
  int64_t n, grain;
};
// REQUIRES: the layout has elements.
inline Cut CutOf(const Layout& l) {
  const int64_t extent = l.shape[l.rank - 1], part = extent < kGrain ? extent : kGrain,
                parts = (extent - 1) / part + 1;
  if (l.tile_row > 0) {
    const int64_t planes = l.elements / (l.shape[l.rank - 2] * extent),
                  tile = l.tile_rows * l.tile_row;
    return {
        tile, 1,
        planes * ((l.shape[l.rank - 2] - 1) / l.tile_rows + 1) * ((extent - 1) / l.tile_row + 1),
        tile < kGrain ? kGrain / tile : 1};
  }
  if (l.direct) return {part, parts, l.elements / extent * parts, kGrain / part};
  return {part, parts, l.elements, l.grain};
}

inline int RunLayout(const opw_call* c, RowFunction function) {
  const Layout& l = *static_cast<const Layout*>(c->state);
  if (l.elements == 0) return OPW_OK;
  const Cut cut = CutOf(l);
  Job job{l, c, function, cut.part, cut.parts};
  if (l.direct && l.elements <= kGrain && l.rank == 1) {
    job.RunDirect(0, 1);
    return OPW_OK;
  }
  c->runtime->parallel_for(
      c->runtime, cut.n, cut.grain,
      [](void* context, int64_t begin, int64_t end) {
        static_cast<const Job*>(context)->Run(begin, end);
      },
      &job);
  return OPW_OK;
}

// Null where the call has the program's element types: the inputs', then the outputs'.
inline const char* SupportsTypes(const opw_call* c, int inputs, int outputs, const uint8_t* types) {
  for (int t = 0; t < inputs + outputs; ++t) {
    const opw_tensor& x = t < inputs ? c->operands[t] : c->results[t - inputs];
    if (x.dtype != types[t] || x.encoding != 0) return "element types are not the program's";
  }
  return nullptr;
}

}  // namespace
}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_DRIVER_INC_H_

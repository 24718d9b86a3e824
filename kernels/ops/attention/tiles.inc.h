// Operations of attention on a tile of positions in lanes and positions in rows: products of all
// pairs, and sums over the rows. The includer defines OPWIRE_ISA.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_TILES_INC_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_TILES_INC_H_

#include "kernels/abi.h"
#include "kernels/fused/turn.inc.h"
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::attention::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

constexpr int64_t kRows = 64;                             // of a tile
constexpr int64_t kTilesUnasked = 8;                      // between two looks at the stop word
constexpr int kWideVectors = kVectorBytes == 64 ? 4 : 2;  // that registers hold sums of

template <typename S>
constexpr bool kAsComputed = false;
template <>
constexpr bool kAsComputed<float> = true;
template <>
constexpr bool kAsComputed<double> = true;

// Rows in the computing type.
template <typename E>
struct Rows {
  const E* data;
  int64_t stride;
};

// Rows of n contiguous elements: in place, or converted into `to`.
template <typename S, typename E>
inline Rows<E> Widened(const S* from, int64_t rows, int64_t n, int64_t stride, E* to) {
  if constexpr (kAsComputed<S>) {
    return {from, stride};
  } else {
    constexpr int kLanes = Mem<S>::kLanes;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes)
        Mem<E>::Store(to + r * n + i, Mem<S>::Load(from + r * stride + i));
      if (i < n) Mem<E>::StoreN(to + r * n + i, Mem<S>::LoadN(from + r * stride + i, n - i), n - i);
    }
    return {to, n};
  }
}

// Lanes: kVectors vectors of E. Values of lanes are stored by elements of a head, values of pairs
// by rows.
template <typename E, int kVectors>
struct Tile {
  static constexpr int kLanes = Mem<E>::kLanes, kAcross = kVectors * kLanes;
  static constexpr int kAtOnce =
      kVectors == 1 ? 8 : 4;  // rows or columns, times vectors of lanes: in registers

  // products[j][lane]: row j by the lane's, of `depth` elements.
  static void Products(Rows<E> rows, int64_t n, int64_t depth, const E* lanes, E* products) {
    for (int64_t j = 0; j < n; j += kAtOnce) {
      const E* row[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i)
        row[i] = rows.data + (j + i < n ? j + i : n - 1) * rows.stride;
      Vec<E> sums[kAtOnce][kVectors] = {};
      for (int64_t l = 0; l < depth; ++l) {
        for (int v = 0; v < kVectors; ++v) {
          const Vec<E> q = Mem<E>::Load(lanes + l * kAcross + v * kLanes);
          for (int i = 0; i < kAtOnce; ++i) sums[i][v] = Fma(Splat(row[i][l]), q, sums[i][v]);
        }
      }
      for (int i = 0; i < kAtOnce && j + i < n; ++i) {
        for (int v = 0; v < kVectors; ++v)
          Mem<E>::Store(products + (j + i) * kAcross + v * kLanes, sums[i][v]);
      }
    }
  }

  // sums[c][lane] += column c of the rows, by the lane's weights of them.
  static void Accumulate(Rows<E> rows, int64_t n, int64_t depth, const E* weights, E* sums) {
    for (int64_t c = 0; c < depth; c += kAtOnce) {
      int64_t columns[kAtOnce];
      Vec<E> s[kAtOnce][kVectors];
      for (int i = 0; i < kAtOnce; ++i) {
        columns[i] = c + i < depth ? c + i : depth - 1;
        for (int v = 0; v < kVectors; ++v)
          s[i][v] = Mem<E>::Load(sums + columns[i] * kAcross + v * kLanes);
      }
      for (int64_t j = 0; j < n; ++j) {
        const E* const row = rows.data + j * rows.stride;
        for (int v = 0; v < kVectors; ++v) {
          const Vec<E> w = Mem<E>::Load(weights + j * kAcross + v * kLanes);
          for (int i = 0; i < kAtOnce; ++i) s[i][v] = Fma(Splat(row[columns[i]]), w, s[i][v]);
        }
      }
      for (int i = 0; i < kAtOnce && c + i < depth; ++i) {
        for (int v = 0; v < kVectors; ++v)
          Mem<E>::Store(sums + (c + i) * kAcross + v * kLanes, s[i][v]);
      }
    }
  }
};

// Number of lanes that are transposed to rows, or rows to lanes, at a time.
template <typename E>
constexpr int kTurned = 16 / sizeof(E);

// lanes[l * across + r] = factor times element l of `depth` of the row at row_of(r).
template <typename S, typename E, typename RowOf>
inline void LoadLanes(const RowOf& row_of, int64_t across, int64_t depth, E factor, E* lanes) {
  alignas(64) E rows[kTurned<E>][kAttentionDepth], wide[kAttentionDepth];
  for (int64_t r = 0; r < across; r += kTurned<E>) {
    for (int i = 0; i < kTurned<E>; ++i) {
      const Rows<E> row = Widened<S>(row_of(r + i), 1, depth, 0, wide);
      for (int64_t l = 0; l < depth; ++l) rows[i][l] = row.data[l] * factor;
    }
    fused::TurnOf<sizeof(E), false>(reinterpret_cast<char*>(lanes + r), across * sizeof(E),
                                    reinterpret_cast<const char*>(rows), sizeof(rows[0]), depth,
                                    kTurned<E>);
  }
}

// Stores the sums of each of `count` lanes, times factor, to the row of S at row_of(r).
template <typename S, typename E, typename RowOf>
inline void StoreLanes(const E* sums, int64_t across, int64_t count, int64_t depth, E factor,
                       const RowOf& row_of) {
  constexpr int kLanes = Mem<S>::kLanes;
  alignas(64) E rows[kTurned<E>][kAttentionDepth];
  for (int64_t r = 0; r < count; r += kTurned<E>) {
    fused::TurnOf<sizeof(E), false>(reinterpret_cast<char*>(rows), sizeof(rows[0]),
                                    reinterpret_cast<const char*>(sums + r), across * sizeof(E),
                                    kTurned<E>, depth);
    for (int i = 0; i < kTurned<E> && r + i < count; ++i) {
      S* const to = row_of(r + i);
      int64_t c = 0;
      for (; c + kLanes <= depth; c += kLanes)
        Mem<S>::Store(to + c, Mem<E>::Load(rows[i] + c) * Splat(factor));
      if (c < depth)
        Mem<S>::StoreN(to + c, Mem<E>::LoadN(rows[i] + c, depth - c) * Splat(factor), depth - c);
    }
  }
}

}  // namespace
}  // namespace opwire::ops::attention::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_TILES_INC_H_

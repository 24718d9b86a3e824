// A matmul cut into calls of some milliseconds, so that a run can stop between them. Not for files
// built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_
#define OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops::matmul {

// Axes are the batch axes and then the rows of z. Along the axes before `axis` every position is a
// separate piece. Along `axis` every `length` positions are one piece (the last piece has the
// rest). Later axes are whole. Pieces of rows have at least kMinRows rows, as the library packs all
// of y for each: beyond 1024 columns times 1024 terms they take longer. If such pieces still take
// too long, their columns are divided. The library then packs the rows of x for each part.
struct MatmulPieces {
  static constexpr int64_t kMinRows = 256;
  static constexpr int64_t kMinColumns = 64;
  static constexpr int64_t kMost =
      4;  // most times the intended work of a piece, for a piece of rows

  int axis = 0;
  int64_t length, extent, x_stride, y_stride, z_stride;  // along `axis`; strides in elements
  int64_t outer = 1;                                     // positions of the axes before
  int64_t columns, width;                                // of z, and of a piece

  // Makes pieces of at most `work` multiplications, if rows allow that.
  MatmulPieces(const MatmulShapes& s, int64_t work) {
    int64_t inner = s.m * s.n * s.k;  // multiplications of one position of the axes up to `axis`
    for (int a = 0; a < s.batch_rank; ++a) inner *= s.batch[a];
    for (;; ++axis) {
      const bool rows = axis == s.batch_rank;
      extent = rows ? s.m : s.batch[axis];
      inner /= extent;
      if (rows || inner <= work) break;
      outer *= extent;
    }
    const bool rows = axis == s.batch_rank;
    x_stride = rows ? s.x_m : s.x_batch[axis];
    y_stride = rows ? 0 : s.y_batch[axis];
    z_stride = rows ? s.z_m : s.z_batch[axis];
    const int64_t pieces = std::clamp<int64_t>((extent * inner - 1) / work + 1, 1, extent);
    length = (extent + pieces - 1) / pieces;
    columns = width = s.n;
    if (!rows) return;
    length = std::min(extent, std::max(length, kMinRows));
    if (length * inner <= kMost * work) return;
    const int64_t cuts = (length * inner - 1) / (kMost * work) + 1;
    width = std::min(columns,
                     std::max(kMinColumns, ((columns - 1) / cuts / kMinColumns + 1) * kMinColumns));
  }

  // The sizes of a piece of `positions` along `axis` and `piece_columns` columns.
  MatmulShapes Of(MatmulShapes s, int64_t positions, int64_t piece_columns) const {
    std::fill_n(s.batch, axis, 1);
    (axis == s.batch_rank ? s.m : s.batch[axis]) = positions;
    s.n = piece_columns;
    return s;
  }

  // Calls f(x offset, y offset, z offset, positions along `axis`, first column, columns), offsets
  // in elements, for each piece until the run is stopped.
  template <typename F>
  void ForEach(const opw_call* c, const MatmulShapes& s, const F& f) const {
    Walk<3> walk(axis, s.batch);
    for (int a = 0; a < axis; ++a) {
      walk.SetStride(0, a, s.x_batch[a]);
      walk.SetStride(1, a, s.y_batch[a]);
      walk.SetStride(2, a, s.z_batch[a]);
    }
    walk.Start(0);
    for (int64_t o = 0; o < outer; ++o, walk.Next()) {
      for (int64_t i = 0; i < extent; i += length) {
        for (int64_t j = 0; j < columns; j += width) {
          if (o + i + j > 0 && Stopped(c)) return;
          f(walk.offset(0) + i * x_stride, walk.offset(1) + i * y_stride + j * s.y_n,
            walk.offset(2) + i * z_stride + j * s.z_n, std::min(length, extent - i), j,
            std::min(width, columns - j));
        }
      }
    }
  }
};

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_

// A matmul cut into calls of some milliseconds, so that a run can stop between them. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_
#define OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops {

// Axes are the batch axes and then the rows of z. Along those before `axis` every position is a piece of its own, along `axis`
// every `length` are one (the last piece has the rest), and those after it are whole. Pieces of rows are at least kMinRows high,
// for the library packs all of y for each: beyond 1024 columns times 1024 terms they take longer.
struct MatmulPieces {
  static constexpr int64_t kMinRows = 256;

  int axis = 0;
  int64_t length, extent, x_stride, y_stride, z_stride;  // along `axis`; strides in elements
  int64_t outer = 1;                                     // positions of the axes before

  // Pieces of at most `work` multiplications, as far as rows allow it.
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
    if (rows) length = std::min(extent, std::max(length, kMinRows));
  }

  // The sizes of a piece of `positions` along `axis`.
  MatmulShapes Of(MatmulShapes s, int64_t positions) const {
    std::fill_n(s.batch, axis, 1);
    (axis == s.batch_rank ? s.m : s.batch[axis]) = positions;
    return s;
  }

  // Calls f(x offset, y offset, z offset, positions along `axis`), offsets in elements, for each piece until the run is stopped.
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
        if (o + i > 0 && Stopped(c)) return;
        f(walk.offset(0) + i * x_stride, walk.offset(1) + i * y_stride, walk.offset(2) + i * z_stride,
          std::min(length, extent - i));
      }
    }
  }
};

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_MATMUL_PIECES_H_

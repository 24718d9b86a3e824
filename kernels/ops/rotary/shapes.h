// The sizes of a rotary_embedding call, and its frequencies. Not for files built for an instruction
// set.
#ifndef OPWIRE_KERNELS_OPS_ROTARY_SHAPES_H_
#define OPWIRE_KERNELS_OPS_ROTARY_SHAPES_H_

#include <cmath>

#include "kernels/ops/call.h"

namespace opwire::ops::rotary {

// x has rows of `depth` elements. Axes along which the position does not change are shared: rows
// that differ only in those have equal angles.
struct RotaryShapes {
  int64_t depth, rotated, pairs;  // D, the part of it that attribute dim defines, and half of that
  int64_t rows = 1;               // of x
  int64_t angles = 1;             // rows that do not share a position
  int rank;                       // of the axes that rows are walked along
  bool own[OPW_MAX_RANK];         // by axis: whether the position varies along it
  int64_t positions[OPW_MAX_RANK];  // the strides of positions; without them, of the count along S
  bool interleaved, inverse;
  double theta, scale;

  explicit RotaryShapes(const opw_call* c) {
    const opw_tensor &x = Operand(c, 0), &p = Operand(c, 1);
    rank = x.rank - 1;
    depth = x.shape[rank];
    rotated = c->attrs[0].value.i != 0 ? c->attrs[0].value.i : depth;
    pairs = rotated / 2;
    theta = c->attrs[1].value.f;
    interleaved = c->attrs[2].value.i != 0;
    scale = c->attrs[3].value.f;
    inverse = c->attrs[4].value.i != 0;
    for (int a = 0; a < rank; ++a) {
      const int at = a - (rank - p.rank);
      if (Absent(p))
        positions[a] = a == rank - 1 ? 1 : 0;
      else
        positions[a] = at < 0 || p.shape[at] == 1 ? 0 : p.strides[at];
      own[a] = positions[a] != 0;
      rows *= x.shape[a];
      if (own[a]) angles *= x.shape[a];
    }
  }

  // The angle of pair i at a position of 1, before scale: negative for an inverse rotation.
  double Frequency(int64_t i) const {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    return inverse ? -f : f;
  }
  // The position at this offset, read once; without positions the offset itself. Scaled.
  double PositionAt(const opw_tensor& p, int64_t offset) const {
    return static_cast<double>(Absent(p) ? offset : LoadIndex(p, offset)) * scale;
  }
};

}  // namespace opwire::ops::rotary

#endif  // OPWIRE_KERNELS_OPS_ROTARY_SHAPES_H_

// Parameters of the kernels on GPUs that move elements, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_SHAPE_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::shape {

// y[o, i, :] = x[o, at(i), :] for dense x [outer, extent, inner] and y [outer, count, inner]. A
// thread moves `items` elements of a row.
struct RowsParams {
  const void* x;
  const void* index;  // at(i), or the start if there is only one
  void* y;
  Reporter reporter;
  long long outer, extent, count, inner;
  long long chunks;  // of a row: inner / items, rounded up
  long long step;    // slices: from one row to the next
};

// y at v's places = v, if all of them are in y.
struct UpdateParams {
  const void* v;
  const void* starts;  // [rank]
  void* y;
  Reporter reporter;
  long long elements;  // of v
  int rank;
  long long extents[16], lengths[16], steps[16], strides[16];  // by axis; strides of y
  Axes<1, 16> axes;  // of v, with y's strides times the steps
};

// y[i] = x[..., index[i], ...] of dense tensors. `axes` gives x's offset except for the indexed
// axis, and is walked along y.
struct GatherParams {
  const void* x;
  const void* index;
  void* y;
  Reporter reporter;
  long long elements, extent, stride;  // of x along the axis
  Axes<1, 16> axes;
};

// Sums of src at the places that index names, in order of src. Columns are the positions of index
// along all other axes.
struct ScatterParams {
  const void* index;
  const void* src;
  void* sums;  // in the computing type, row-major as the result
  Reporter reporter;
  long long columns, length, extent;
  long long index_stride, src_stride, stride;  // along the axis: of index, src and sums
  Axes<3, 16> axes;                            // of a column: in index, src and sums
};

// y[r] = the sum of grad[n] over the positions n for which index has r; dense. Tensors in the
// workspace have type P, u32 or u64, unless noted otherwise.
struct EmbeddingBackwardParams {
  const void* grad;   // [positions, columns]
  const void* index;  // [positions]
  void* y;            // [rows, columns]
  void* places;    // [kGroupThreads, each]: the row that each position names, in their order; all
                   // bits set if it names none, and after the positions
  void* order;     // [found]: the positions that name a row, by row, and in their order
  void* named;     // [found]: the row of each of these
  void* found;     // long long
  void* partials;  // [spans, 2, columns] in the computing type: of rows that began before a span,
                   // and of those that continue after it
  Reporter reporter;
  long long positions, rows, columns;
  long long each;  // of places, a multiple of 4
  long long span;  // of order
  int row_bits;    // of a block that groups: logarithm of its rows
  int lane_bits;   // logarithm of the threads for a row's columns, in a warp
};
inline constexpr int kGroupThreads = 512;
inline constexpr int kJoinedSpans = 8;  // of a block, which has as many slices of 32 threads

// y at the places that index names = src, if all of them are in y. If several name one place the
// last one is used. y is [outer, extent, inner], src [outer, puts, inner].
struct PutParams {
  const void* index[16];  // by axis that has places: [puts]
  const void* src;
  void* y;
  unsigned long long* keys;  // [slots]: a place + 1; 0: none
  unsigned long long* last;  // [slots]: index in src of the last put to this place, + 1
  long long* slot_of;        // [puts]
  unsigned* outside;         // whether a place is outside
  Reporter reporter;
  long long extents[16];  // of these axes
  int axes;
  long long outer, extent, inner, puts;
  long long chunks;         // of a row: inner / items, rounded up
  unsigned long long mask;  // slots - 1, with a hash of the place; 0: the slot is the place
};

// Converts between elements and their computing type.
struct ConvertParams {
  const void* x;
  void* y;
  long long elements;
};

inline constexpr int kChooseMost = 64;
// y[i] = xs[case[i] - first][i] where 0 <= case[i] - first < kChooseMost.
struct ChooseParams {
  const void* xs[kChooseMost];
  const void* choice;
  void* y;
  Reporter reporter;
  long long elements, first, count, here;  // `count` of all, `here` of this launch
};

struct OneHotParams {
  const void* index;
  void* y;
  Reporter reporter;
  long long rows, classes;
};

// y[b, j, i] = x[b, i, j]: a plane of x has `rows` x `columns` elements, columns contiguous; one of
// y columns x rows, rows contiguous.
struct TransposeParams {
  const void* x;
  void* y;
  long long rows, columns, x_row, y_column;  // strides in elements
  long long batches;
  Axes<2, 16> batch;
};

}  // namespace opw::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_GPU_PARAMS_H_

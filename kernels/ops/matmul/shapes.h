// A matmul's extents and strides, with transposes resolved. Not for files built for an instruction
// set.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_SHAPES_H_
#define OPWIRE_KERNELS_OPS_MATMUL_SHAPES_H_

#include <cstdint>
#include <utility>

#include "kernels/ops/call.h"

namespace opwire::ops::matmul {

// z[b, i, j] = sum over l of x[b, i, l] * y[b, l, j], batch axes broadcast.
struct MatmulShapes {
  int64_t m, n, k;
  int64_t x_m, x_k, y_k, y_n, z_m, z_n;  // strides in elements
  int batch_rank;
  int64_t batch[OPW_MAX_RANK];
  int64_t x_batch[OPW_MAX_RANK], y_batch[OPW_MAX_RANK], z_batch[OPW_MAX_RANK];

  // Of a matmul's call. `merge`: batches become further rows if they continue the rows of x and z
  // and have the same y. False if rows differ in more than their values, such as in a scale for
  // each row.
  explicit MatmulShapes(const opw_call* c, bool merge = true)
      : MatmulShapes(Operand(c, 0), c->attrs[0].value.i != 0, Operand(c, 1),
                     c->attrs[1].value.i != 0, c->results[0], merge) {}
  // Of a product of two dense matrices.
  MatmulShapes(int64_t rows, int64_t columns, int64_t depth, int64_t x_row, int64_t x_column,
               int64_t y_row, int64_t y_column, int64_t z_row)
      : m(rows),
        n(columns),
        k(depth),
        x_m(x_row),
        x_k(x_column),
        y_k(y_row),
        y_n(y_column),
        z_m(z_row),
        z_n(1),
        batch_rank(0) {}
  // Of tensors of rank 2 at least; x and z may also be one row each, of rank 1.
  MatmulShapes(const opw_tensor& x, bool transpose_x, const opw_tensor& y, bool transpose_y,
               const opw_tensor& z, bool merge = true)
      : batch_rank(0) {
    const int y_k_axis = transpose_y ? y.rank - 1 : y.rank - 2,
              y_n_axis = 2 * y.rank - 3 - y_k_axis;
    k = y.shape[y_k_axis], n = y.shape[y_n_axis];
    y_k = y.strides[y_k_axis], y_n = y.strides[y_n_axis];
    z_n = z.strides[z.rank - 1];
    if (x.rank == 1) {
      m = 1, x_m = k, x_k = x.strides[0], z_m = n;
      return;
    }
    const int x_k_axis = transpose_x ? x.rank - 2 : x.rank - 1,
              x_m_axis = 2 * x.rank - 3 - x_k_axis;
    m = x.shape[x_m_axis];
    x_m = x.strides[x_m_axis], x_k = x.strides[x_k_axis];
    z_m = z.strides[z.rank - 2];
    for (int a = 0; a < z.rank - 2; ++a) {
      if (z.shape[a] == 1) continue;
      batch[batch_rank] = z.shape[a];
      z_batch[batch_rank] = z.strides[a];
      x_batch[batch_rank] = BatchStride(x, a - (z.rank - x.rank));
      y_batch[batch_rank++] = BatchStride(y, a - (z.rank - y.rank));
    }
    if (merge) MergeBatch();
  }

  int64_t Batches() const {
    int64_t count = 1;
    for (int a = 0; a < batch_rank; ++a) count *= batch[a];
    return count;
  }

 private:
  static int64_t BatchStride(const opw_tensor& t, int axis) {
    return axis < 0 || t.shape[axis] == 1 ? 0 : t.strides[axis];
  }

  void MergeBatch() {
    while (batch_rank > 0 && y_batch[batch_rank - 1] == 0 && x_batch[batch_rank - 1] == m * x_m &&
           z_batch[batch_rank - 1] == m * z_m) {
      m *= batch[--batch_rank];
    }
  }
};

// A walk over the batches, with the offsets of z, x and y. It keeps a pointer to `s`.
inline Walk<3> BatchWalk(const MatmulShapes& s) {
  Walk<3> walk(s.batch_rank, s.batch);
  for (int a = 0; a < s.batch_rank; ++a) {
    walk.SetStride(0, a, s.z_batch[a]);
    walk.SetStride(1, a, s.x_batch[a]);
    walk.SetStride(2, a, s.y_batch[a]);
  }
  return walk;
}

// Whether each element of the result is the dot product of a contiguous row and one contiguous
// column.
inline bool IsDotProducts(const MatmulShapes& s) {
  return s.n == 1 && (s.k <= 1 || (s.x_k == 1 && s.y_k == 1));
}

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_SHAPES_H_

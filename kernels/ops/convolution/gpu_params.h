// Parameters of convolution's portable kernel, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::convolution {

// For each group z[row, column] = bias[row] + sum over `depth` terms of direct[row, term] *
// gathered[term, column]; strides in elements. Along its three spatial axes the position in
// gathered is (start + the term's position + the column's) / step. If that is not whole, or outside
// of its extents, gathered is 0.
struct Params {
  const void* direct;
  const void* gathered;
  const void* bias;  // null: none
  void* z;
  void* parts;  // if there are several `chunks`: the sum of each, [chunk, group, row, column] of
                // the computing type, until they are added in order
  long long rows, columns, depth, groups;
  long long chunks, chunk;  // of the terms: number of chunks, and size of each except the last
  long long direct_group, direct_row, gathered_group, z_group, z_row, bias_row;
  long long start[3], step[3], extents[3], strides[3];
  Axes<5, 4> of_terms;    // offsets in direct and gathered, and the position along gathered's axes
  Axes<5, 4> of_columns;  // the same of z and gathered
};

}  // namespace opw::convolution

#endif  // OPWIRE_KERNELS_OPS_CONVOLUTION_GPU_PARAMS_H_

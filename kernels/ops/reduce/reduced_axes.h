// The axes that a call reduces, and walks over the kept and the reduced axes.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_REDUCED_AXES_H_
#define OPWIRE_KERNELS_OPS_REDUCE_REDUCED_AXES_H_

#include <cstdint>

#include "kernels/ops/call.h"

namespace opwire::ops::reduce {

struct ReducedAxes {
  int kept_rank = 0, folded_rank = 0;
  int64_t kept_shape[OPW_MAX_RANK], folded_shape[OPW_MAX_RANK];
  int64_t kept_strides[OPW_MAX_RANK], folded_strides[OPW_MAX_RANK];  // in the operand
  int64_t result_strides[OPW_MAX_RANK];                              // of the kept axes
  int64_t kept = 1, reduced = 1;                                     // elements

  // `reduction[a]`: axis a of x is reduced. `result` has the kept axes, and with `keepdim` an
  // extent of 1 for each reduced axis.
  ReducedAxes(const opw_tensor& x, const opw_tensor& result, const bool* reduction, bool keepdim) {
    for (int a = 0, r = 0; a < x.rank; ++a) {
      if (reduction[a]) {
        folded_shape[folded_rank] = x.shape[a];
        folded_strides[folded_rank++] = x.strides[a];
        reduced *= x.shape[a];
        r += keepdim;
      } else {
        kept_shape[kept_rank] = x.shape[a];
        result_strides[kept_rank] = result.strides[r++];
        kept_strides[kept_rank++] = x.strides[a];
        kept *= x.shape[a];
      }
    }
  }
};

// By the attributes of the reductions: a list of axes (empty: all) and keepdim.
inline ReducedAxes ReducedAxesOfDims(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_attr& dims = c->attrs[0];
  bool reduction[OPW_MAX_RANK] = {};
  for (int a = 0; a < x.rank; ++a) reduction[a] = dims.count == 0;
  for (int64_t i = 0; i < dims.count; ++i) reduction[Axis(dims.value.ints[i], x.rank)] = true;
  return ReducedAxes(x, c->results[0], reduction, c->attrs[1].value.i != 0);
}

// By the attributes of argmax and argmin: one axis, and keepdim.
inline ReducedAxes ReducedAxesOfDim(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  bool reduction[OPW_MAX_RANK] = {};
  reduction[Axis(c->attrs[0].value.i, x.rank)] = true;
  return ReducedAxes(x, c->results[0], reduction, c->attrs[1].value.i != 0);
}

}  // namespace opwire::ops::reduce

#endif  // OPWIRE_KERNELS_OPS_REDUCE_REDUCED_AXES_H_

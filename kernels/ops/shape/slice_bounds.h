// The positions that slice_update writes. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_SLICE_BOUNDS_H_
#define OPWIRE_KERNELS_OPS_SHAPE_SLICE_BOUNDS_H_

#include "kernels/ops/call.h"

namespace opwire::ops::shape {

// For a call of slice_update: the first position by axis of x, -1 if that is outside, and the step.
struct SliceBounds {
  int64_t first[OPW_MAX_RANK], step[OPW_MAX_RANK];

  explicit SliceBounds(const opw_call* c) {
    const opw_tensor &x = Operand(c, 0), &starts = Operand(c, 2);
    const opw_attr& steps = c->attrs[0];
    for (int a = 0; a < x.rank; ++a) {
      first[a] = WrapIndex(LoadIndex(starts, a * starts.strides[0]), x.shape[a]);
      step[a] = steps.count == 0 ? 1 : steps.value.ints[a];
    }
  }

  // Whether there are elements to set and all of them are in x. Reports the first axis along which
  // one is outside.
  bool Check(const opw_call* c) const {
    const opw_tensor &x = Operand(c, 0), &v = Operand(c, 1);
    if (v.elements == 0) return false;
    for (int a = 0; a < x.rank; ++a) {
      if (first[a] >= 0 && (v.shape[a] - 1) <= (x.shape[a] - 1 - first[a]) / step[a]) continue;
      c->runtime->out_of_range(c->runtime, 2, a);
      return false;
    }
    return true;
  }
};

}  // namespace opwire::ops::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_SLICE_BOUNDS_H_

// Kernels that work row by row of dense tensors. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ROW_RANGES_H_
#define OPWIRE_KERNELS_OPS_ROW_RANGES_H_

#include "kernels/ops/call.h"

namespace opwire::ops {

// Elements of a range of rows: about 10 us of work.
inline constexpr int64_t kRowGrain = 8192;

// Elements of the longest row that is processed without a check whether the run was stopped: a few
// milliseconds.
inline constexpr int64_t kMaxStoppable = 4 << 20;

inline int64_t RowsPerRange(int64_t extent) {
  return std::max<int64_t>(1, kRowGrain / std::max<int64_t>(1, extent));
}

// Element i of a dense tensor.
inline char* At(const opw_tensor& t, int64_t i) {
  return static_cast<char*>(t.data) + i * DTypeBytes(TypeOf(t));
}

// The product of the extents starting with `axis`.
inline int64_t ElementsFrom(const opw_tensor& t, int axis) {
  int64_t n = 1;
  for (int a = axis; a < t.rank; ++a) n *= t.shape[a];
  return n;
}

inline bool AllDense(const opw_call* c, int operands, int results = 1) {
  bool dense = true;
  for (int i = 0; i < results; ++i) dense = dense && c->results[i].contiguous != 0;
  for (int i = 0; i < operands; ++i)
    dense = dense && (Absent(c->operands[i]) || c->operands[i].contiguous != 0);
  return dense;
}

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_ROW_RANGES_H_

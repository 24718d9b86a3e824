// Targets of a loss, its reduction, and the number of rows whose logits exist at a time. Not for
// files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_LOSS_TARGET_H_
#define OPWIRE_KERNELS_OPS_LOSS_TARGET_H_

#include <cstdint>

#include "kernels/ops/call.h"

namespace opwire::ops::loss {

enum class Reduction { kNone, kSum, kMean };

inline Reduction ReductionOf(const opw_call* c) {
  const std::string_view text = Text(c->attrs[0]);
  return text == "mean" ? Reduction::kMean : text == "sum" ? Reduction::kSum : Reduction::kNone;
}

// The target of a row in [0, classes); -1 if it is ignored or out of range, which is reported.
// `counted` counts the targets that are not ignored.
inline int64_t CheckedTarget(const opw_call* c, int operand, int64_t row, int64_t classes,
                             int64_t* counted) {
  const opw_tensor& target = Operand(c, operand);
  const int64_t value = LoadIndex(target, row * target.strides[0]);
  if (value == c->attrs[1].value.i) return -1;
  ++*counted;
  if (static_cast<uint64_t>(value) < static_cast<uint64_t>(classes)) return value;
  c->runtime->out_of_range(c->runtime, operand, row);
  return -1;
}

// The number of rows whose target is not ignored.
inline int64_t CountTargets(const opw_call* c, int operand, int64_t rows) {
  const opw_tensor& target = Operand(c, operand);
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row)
    count += LoadIndex(target, row * target.strides[0]) != c->attrs[1].value.i;
  return count;
}

// Rows per chunk of linear_cross_entropy and its gradient, whose logits have `row_bytes` bytes per
// row.
inline int64_t RowsAtATime(const opw_call* c, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kMostBytes = int64_t{256} << 20, kWhole = 128;
  int64_t at_a_time = c->attrs[2].value.i;
  if (at_a_time == 0) {
    at_a_time = std::max<int64_t>(1, kMostBytes / std::max<int64_t>(1, row_bytes));
    if (at_a_time > kWhole) at_a_time -= at_a_time % kWhole;
  }
  return std::clamp<int64_t>(at_a_time, 1, std::max<int64_t>(1, rows));
}

}  // namespace opwire::ops::loss

#endif  // OPWIRE_KERNELS_OPS_LOSS_TARGET_H_

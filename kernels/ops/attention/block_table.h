// Pages of a pool, addressed by block tables. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_BLOCK_TABLE_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_BLOCK_TABLE_H_

#include "kernels/ops/call.h"

namespace opwire::ops::attention {

// The number of positions in a row of the table, in pages of `page` positions. If pages have no
// elements the product may overflow; it is then limited.
inline int64_t PositionsOf(const opw_tensor& table, int64_t page) {
  int64_t positions = 0;
  return __builtin_mul_overflow(table.shape[1], page, &positions) ? INT64_MAX / 4 : positions;
}
// Returns the page of a pool of `pages` pages that has batch b's positions n * page to (n + 1) *
// page. Reads the value of the operand `which` once. If it is out of range, reports that and
// returns -1.
inline int64_t PageOf(const opw_call* c, int which, int64_t pages, int64_t b, int64_t n) {
  const opw_tensor& table = Operand(c, which);
  const int64_t at = b * table.shape[1] + n,
                found = WrapIndex(LoadIndex(table, OffsetOf(table, at)), pages);
  if (found < 0) c->runtime->out_of_range(c->runtime, which, at);
  return found;
}

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_BLOCK_TABLE_H_

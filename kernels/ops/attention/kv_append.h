// The sizes of a kv_append call. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_

#include "kernels/ops/call.h"

namespace opwire::ops {

// cache and y [batches, heads, rows, columns], added [batches, heads, added, columns].
struct AppendShapes {
  const opw_tensor &cache, &added, &position, &y;
  int64_t batches = 1, heads, rows, new_rows, columns;

  explicit AppendShapes(const opw_call* c) : cache(Operand(c, 0)), added(Operand(c, 1)), position(Operand(c, 2)), y(c->results[0]) {
    const int batch = cache.rank - 3;
    for (int a = 0; a < batch; ++a) batches *= cache.shape[a];
    heads = cache.shape[batch], rows = cache.shape[batch + 1], columns = cache.shape[batch + 2];
    new_rows = added.shape[batch + 1];
  }
  int64_t places() const { return rows - new_rows + 1; }
  bool one() const { return position.rank == 0; }  // position of all batches
  // The first row that batch b's new ones go to, the value read once; -1: out of range, which is reported.
  int64_t First(const opw_call* c, int64_t b) const {
    const int64_t first = WrapIndex(LoadIndex(position, one() ? 0 : OffsetOf(position, b)), places());
    if (first < 0) c->runtime->out_of_range(c->runtime, 2, one() ? 0 : b);
    return first;
  }
};

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_

// The sizes of a kv_append call. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_

#include "kernels/ops/attention/block_table.h"

namespace opwire::ops::attention {

// cache and y [batches, heads, rows, columns], added [batches, heads, added, columns]; with a block
// table cache and y are [pages, heads, rows, columns].
struct AppendShapes {
  const opw_tensor &cache, &added, &position, &table, &y;
  int64_t batches = 1, heads, rows, new_rows, columns;
  bool paged;

  explicit AppendShapes(const opw_call* c)
      : cache(Operand(c, 0)),
        added(Operand(c, 1)),
        position(Operand(c, 2)),
        table(Operand(c, 3)),
        y(c->results[0]),
        paged(!Absent(table)) {
    const int batch = added.rank - 3;
    for (int a = 0; a < batch; ++a) batches *= added.shape[a];
    heads = cache.shape[batch], rows = cache.shape[batch + 1], columns = cache.shape[batch + 2];
    new_rows = added.shape[batch + 1];
  }
  int64_t pages() const { return cache.shape[0]; }
  int64_t places() const { return (paged ? PositionsOf(table, rows) : rows) - new_rows + 1; }
  bool one() const { return position.rank == 0; }  // position of all batches
  // The first row that batch b's new ones go to, the value read once; -1: out of range, which is
  // reported.
  int64_t First(const opw_call* c, int64_t b) const {
    const int64_t first =
        WrapIndex(LoadIndex(position, one() ? 0 : OffsetOf(position, b)), places());
    if (first < 0) c->runtime->out_of_range(c->runtime, 2, one() ? 0 : b);
    return first;
  }
  // The row of the cache, of all its rows, that the position `at` of a batch and head has; with
  // pages: -1 where its page is not there.
  int64_t RowOf(const opw_call* c, int64_t b, int64_t head, int64_t at) const {
    const int64_t page = paged ? PageOf(c, 3, pages(), b, at / rows) : b;
    return page < 0 ? -1 : (page * heads + head) * rows + (paged ? at % rows : at);
  }
};

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_KV_APPEND_H_

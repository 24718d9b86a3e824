// The sizes of a kv_attention call, whose tensors are dense. Not for files built for an instruction
// set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_KV_ATTENTION_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_KV_ATTENTION_H_

#include <cmath>

#include "kernels/ops/attention/block_table.h"
#include "kernels/ops/attention/shapes.h"

namespace opwire::ops::attention {

// query is [batches, heads, rows, depth] and output is [batches, heads, rows, value_depth]. `rows`
// are the queries of all query heads that share one of the `heads` of keys. The queries of a head
// are neighbours. The caches are [batches or pages, heads, page, depth or value_depth].
struct KvAttentionShapes {
  const opw_tensor &query, &key, &value, &length, &table;
  int64_t batches = 1, heads, queries, rows, depth, value_depth;
  int64_t page;       // positions of a page; without pages: of a batch
  int64_t pages = 0;  // of the pool; 0: the call has no pages, or the pool is empty
  int64_t positions;  // that a batch may have
  bool paged, causal;
  int64_t window;  // 0: none
  double scale;

  explicit KvAttentionShapes(const opw_call* c)
      : query(Operand(c, 0)),
        key(Operand(c, 1)),
        value(Operand(c, 2)),
        length(Operand(c, 3)),
        table(Operand(c, 4)),
        paged(!Absent(table)) {
    const int batch = query.rank - 3;
    for (int a = 0; a < batch; ++a) batches *= query.shape[a];
    heads = key.shape[batch], queries = query.shape[batch + 1], depth = query.shape[batch + 2],
    value_depth = value.shape[batch + 2];
    rows = heads == 0 ? 0 : query.shape[batch] / heads * queries;
    page = key.shape[batch + 1];
    if (paged) pages = key.shape[0];
    positions = paged ? PositionsOf(table, page) : page;
    causal = c->attrs[0].value.i != 0;
    window = std::min(c->attrs[1].value.i, queries + positions);
    const double given = c->attrs[2].value.f;
    scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, depth)));
  }

  bool one() const { return length.rank == 0; }  // length of all batches
  // Returns the number of positions of batch b, and reads the value once. If it is out of range,
  // reports that and returns 0.
  int64_t LengthOf(const opw_call* c, int64_t b) const {
    const int64_t at = one() ? 0 : b, n = WrapIndex(LoadIndex(length, at), positions + 1);
    if (n < 0) c->runtime->out_of_range(c->runtime, 3, at);
    return n < 0 ? 0 : n;
  }
  // The first row of a head's positions in the caches: of page n, or of batch n without pages.
  int64_t RowsOf(int64_t n, int64_t head) const { return (n * heads + head) * page; }
  // The positions that row r sees of n. The queries are the last ones.
  AttentionRange KeysOf(int64_t r, int64_t n) const {
    const int64_t own = n - queries + r % queries;
    return {window > 0 ? std::max<int64_t>(0, own - window + 1) : 0,
            causal ? std::max<int64_t>(0, own + 1) : n};
  }
};

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_KV_ATTENTION_H_

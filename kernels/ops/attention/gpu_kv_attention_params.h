// Parameters of kv_attention on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_ATTENTION_PARAMS_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_ATTENTION_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::attention {

inline constexpr int kKvPageThreads = 64, kKvSplitThreads = 128;  // a block
inline constexpr int
    kKvTileRows = 8,
    kKvTileStep = 16;  // of KvTiles: rows per block, and positions of a part of a warp's step
// Parts of a step, for heads of up to 64 * blocks elements: as many as registers can hold.
inline constexpr int kKvTileParts[] = {0, 3, 1};
inline constexpr int kKvMostSplits = 256,
                     kKvJoinThreads =
                         512;  // of KvJoin: a thread has at most one split and one column

// Dense tensors of the sizes in KvAttentionShapes. A slice is a head of keys of a batch, with
// `rows` rows of queries.
struct KvParams {
  const void* query;
  const void* key;
  const void* value;
  const void* length;
  const void* table;  // null: without pages
  void* output;
  void* log_sum_exp;
  void* partial_sums;  // [slices, rows, splits, value_depth], in the computing type
  void* partials;  // [slices, rows, splits, 2]: the largest score and the sum of weights; both only
                   // if there are several splits
  Reporter reporter;
  long long slices, heads, queries, rows, depth, value_depth;
  long long positions, page, pages, row_pages;  // row_pages: pages per row of the table
  long long lengths;                            // 1: one for all batches
  long long wide;                               // 1: length and table are of i64; 0: of i32
  long long splits;
  long long causal, window;  // 0: no such bound
  double scale;
  Divisor of_page, of_heads, of_queries;
};

}  // namespace opw::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_ATTENTION_PARAMS_H_

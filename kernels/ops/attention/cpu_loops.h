// Attention of blocks of queries over all their keys, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::attention {

inline constexpr int64_t kAttentionDepth = 256;  // maximum of D and Dv
inline constexpr int kAttentionQueries = 64;     // most queries of a block, for any instruction set

// At most one block of queries that share their keys and values. Offsets and strides are in
// elements; D, Dv and the output's columns are contiguous.
struct AttentionBlock {
  struct Query {
    int64_t query, mask, output, log_sum_exp;  // offsets of its rows
    int64_t first, last;                       // keys that causal and window permit
  };
  const void *query, *key, *value, *mask;
  void *output, *log_sum_exp;
  Query queries[kAttentionQueries];
  int64_t count;               // of queries; at least one
  int64_t first, last;         // keys that at least one of them may see
  int64_t depth, value_depth;  // at most kAttentionDepth
  int64_t key_row, value_row, mask_column;
  int64_t page;  // contiguous positions; 0: all are contiguous
  int64_t (*page_at)(const void* context,
                     int64_t page);  // first row of key and of value for its positions; -1: the
                                     // page does not exist
  bool mask_is_bool;
  bool one_mask;  // all queries have one row of it
  double scale;
  bool (*stopped)(const void* context);  // called at least every few milliseconds
  const void* context;
};
using AttentionLoop = void (*)(const AttentionBlock&);

// For blocks of up to `queries` queries. Null `run`: not available.
struct AttentionWidth {
  int64_t queries;
  AttentionLoop run;
};
inline constexpr int kAttentionWidths = 7;
struct AttentionLoops {
  AttentionWidth of[16][kAttentionWidths];  // by element type; ascending
};

// At most one block of positions, the lanes. Their gradients are sums over other positions, the
// rows. Lanes are queries and rows are keys and values, or lanes are keys and rows are the queries
// and gradients of all heads that share them. `a` is query or key, `b` the output's gradient or
// value. Offsets and strides are in elements; D and Dv are contiguous.
struct AttentionBackwardBlock {
  struct Lane {
    int64_t a, b, mask, grad_a, grad_b;
    int64_t log_sum_exp, output;  // of queries
    int64_t first, last;          // rows that it sees
  };
  const void *lane_a, *lane_b, *row_a, *row_b, *mask, *log_sum_exp, *output;
  void *grad_a, *grad_b;
  Lane lanes[kAttentionQueries];
  int64_t count;        // of lanes; at least one
  int64_t first, last;  // rows that at least one of them sees
  int64_t heads;        // of rows, one after the other
  int64_t head_a, head_b, head_mask, head_log_sum_exp, head_output;  // strides between heads
  int64_t row_a_stride, row_b_stride, row_mask, row_log_sum_exp, row_output;
  int64_t depth, value_depth;  // at most kAttentionDepth
  bool mask_is_bool;
  double scale;
  bool (*stopped)(const void* context);  // called at least every few milliseconds
  const void* context;
};
using AttentionBackwardLoop = void (*)(const AttentionBackwardBlock&);

struct AttentionBackwardLoops {
  AttentionBackwardLoop of_queries[16], of_keys[16];  // by element type, null: none
  int64_t lanes[16];
};

const AttentionLoops& AttentionLoopsAvx2();
const AttentionLoops& AttentionLoopsAvx512();
const AttentionBackwardLoops& AttentionBackwardLoopsAvx2();
const AttentionBackwardLoops& AttentionBackwardLoopsAvx512();

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_CPU_LOOPS_H_

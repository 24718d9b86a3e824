// Parameters of attention's portable kernels, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::attention {

// Sizes and strides as in AttentionShapes. `axes` walks heads of query, key, value, mask, output
// and logsumexp.
struct Params {
  const void* query;
  const void* key;
  const void* value;
  const void* mask;
  void* output;
  void* log_sum_exp;
  long long heads, queries, keys, depth, value_depth;
  long long query_row, query_column, key_row, key_column, value_row, value_column, mask_row,
      mask_column, output_row, output_column, log_row;
  long long causal, window;  // 0: no such bound
  double scale;
  Axes<6, 16> axes;
};

// Parameters of one gradient. `axes` walks heads of grad, query, key, value, output, logsumexp,
// mask and the result. For the gradient of the query these are the query's heads, otherwise the
// heads of keys. `group` heads of the query share each head of keys; the group_* are the strides
// between them.
struct BackwardParams {
  const void* grad;
  const void* query;
  const void* key;
  const void* value;
  const void* output;
  const void* log_sum_exp;
  const void* mask;
  void* result;
  long long heads, group, queries, keys, depth, value_depth;
  long long grad_row, grad_column, query_row, query_column, key_row, key_column, value_row,
      value_column, output_row, output_column, log_row, mask_row, mask_column, result_row,
      result_column;
  long long group_grad, group_query, group_output, group_log, group_mask;
  long long causal, window;  // 0: no such bound
  double scale;
  Axes<8, 16> axes;
};

}  // namespace opw::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_

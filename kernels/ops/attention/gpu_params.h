// Parameters of attention's portable kernel, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::attention {

// Sizes and strides as AttentionShapes has them; `axes` walks heads of query, key, value, mask, output and logsumexp.
struct Params {
  const void* query;
  const void* key;
  const void* value;
  const void* mask;
  void* output;
  void* log_sum_exp;
  long long heads, queries, keys, depth, value_depth;
  long long query_row, query_column, key_row, key_column, value_row, value_column, mask_row, mask_column, output_row, output_column, log_row;
  long long causal, window;  // 0: no such bound
  double scale;
  Axes<6, 16> axes;
};

}  // namespace opw::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_PARAMS_H_

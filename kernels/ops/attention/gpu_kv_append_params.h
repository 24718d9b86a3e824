// Parameters of kv_append on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_APPEND_PARAMS_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_APPEND_PARAMS_H_

#include "kernels/ops/gpu/shared.h"

namespace opw::attention {

// cache and y [slices, rows, columns] and added [slices, new_rows, columns] of dense tensors; each
// `heads` slices have a position. With a block table, of [slices / heads, row_pages], cache and y
// are [pages, heads, rows, columns].
struct AppendParams {
  const void* cache;
  const void* added;
  const void* position;
  const void* table;
  void* y;
  Reporter reporter;
  long long slices, heads, rows, new_rows, columns;
  long long positions;                 // 1: one for all
  long long pages, row_pages, places;  // places: that the first new row may have
};

}  // namespace opw::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_GPU_KV_APPEND_PARAMS_H_

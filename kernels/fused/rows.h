// A stretch of elements that a scalar program is run over, and the function that does it. Also part
// of compiled units.
#ifndef OPWIRE_KERNELS_FUSED_ROWS_H_
#define OPWIRE_KERNELS_FUSED_ROWS_H_

#include <stdint.h>

#include "kernels/abi.h"
#include "kernels/fused/limits.h"

namespace opwire::fused {

// Of each input contiguous elements, or where bit i of `repeated` is set one for all.
struct Rows {
  const void* context;  // the function's own
  const opw_attr* arguments;
  int64_t n;
  uint32_t repeated;
  bool stream;  // the outputs are 64-byte aligned, and should not push other things out of the
                // caches
  bool far;     // inputs come from memory rather than caches, so that they are asked for ahead
  const char* in[kMaxInputs];
  char* out[kMaxOutputs];
};
using RowFunction = uint32_t (*)(const Rows&);  // the OPW_FLAG_* that it raises

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_ROWS_H_

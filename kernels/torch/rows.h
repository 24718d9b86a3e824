// Which rows of the catalogue libtorch serves, for which types and calls, and which it does not,
// with the reason. Knows nothing of libtorch: what runs is in module/.
#ifndef OPWIRE_KERNELS_TORCH_ROWS_H_
#define OPWIRE_KERNELS_TORCH_ROWS_H_

#include <cstdint>
#include <span>

#include "ir/base/dtype.h"
#include "kernels/abi.h"

namespace opwire::torch {

struct TorchRow {
  const char* op;
  DTypeSet dtypes;     // of the row's first type variable, as far as the row has them
  uint32_t flags = 0;  // OPW_*
  const char* (*supports)(const opw_call*) = nullptr;
  const char* restriction = "";  // Variant::restriction
  DTypeSet only_cpu = {};        // of `dtypes`: those that ATen takes on a cpu only
  const char* others = "";  // why not the row's other types, where that is more than that ATen does
                            // not compute with them
};
std::span<const TorchRow> TorchRows();

// Of all other rows. A row of the catalogue is in one of the two.
struct OtherRow {
  const char* op;
  const char* reason;
};
std::span<const OtherRow> RowsWithoutTorch();

}  // namespace opwire::torch

#endif  // OPWIRE_KERNELS_TORCH_ROWS_H_

// The ops of the catalogue that libtorch supports, for which types and calls, and those that it
// does not support, with the reason. This code does not use libtorch; the module's code is in
// module/.
#ifndef OPWIRE_KERNELS_TORCH_TORCH_OPS_H_
#define OPWIRE_KERNELS_TORCH_TORCH_OPS_H_

#include <cstdint>
#include <span>

#include "ir/base/dtype.h"
#include "kernels/abi.h"

namespace opwire::torch {

struct TorchOp {
  const char* op;
  DTypeSet dtypes;     // of the op's first type variable, limited to the types of its definition
  uint32_t flags = 0;  // OPW_*
  const char* (*supports)(const opw_call*) = nullptr;
  const char* restriction = "";  // Variant::restriction
  DTypeSet only_cpu = {};        // of `dtypes`: those that ATen accepts on a cpu only
  const char* others = "";  // why not the op's other types, unless ATen just does not compute with
                            // them
};
std::span<const TorchOp> TorchOps();

// All other ops. Each op of the catalogue is in one of the two tables.
struct UnsupportedOp {
  const char* op;
  const char* reason;
};
std::span<const UnsupportedOp> UnsupportedOps();

}  // namespace opwire::torch

#endif  // OPWIRE_KERNELS_TORCH_TORCH_OPS_H_

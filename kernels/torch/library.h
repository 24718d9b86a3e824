// Finds and opens opwire_torch.so, and makes variants of the tier libtorch for the rows that it
// supports (torch_ops.h).
//
// The module is searched for at OPWIRE_TORCH (its file or folder), otherwise next to the program
// and in ../lib/opwire. Its libraries come from the installation of torch that it was built with.
// OPWIRE_LIBTORCH names another one: torch's folder, or the folder of Python packages that contains
// torch. Both are searched for when a table is built and opened when a call first needs them. A
// program that needs nothing of torch loads nothing of it.
#ifndef OPWIRE_KERNELS_TORCH_LIBRARY_H_
#define OPWIRE_KERNELS_TORCH_LIBRARY_H_

#include <string>

#include "ir/base/status.h"
#include "kernels/select/variant.h"
#include "kernels/torch/interface.h"

namespace opwire::torch {

// Returns the module's file. NOT_FOUND names the places that were searched.
StatusOr<std::string> FindModule();
// Opens that file, which stays loaded. FAILED_PRECONDITION if it or one of its libraries is
// missing, or if it is built for another executor.
StatusOr<const opw_torch_module*> OpenModule(const std::string& path);

// Adds the variants "torch" of a cpu or a CUDA device, which outlives the table. Without a module
// they are added as unavailable, with the reason.
void AddTorch(VariantTable& table, Device& device);

}  // namespace opwire::torch

#endif  // OPWIRE_KERNELS_TORCH_LIBRARY_H_

// Finds and opens opwire_torch.so, and makes variants of the tier libtorch of the rows that it
// serves (rows.h).
//
// The module is looked for where OPWIRE_TORCH says (its file or folder), else beside the program
// and in ../lib/opwire. Its libraries come from the installation of torch that it was built with,
// or from the one that OPWIRE_LIBTORCH names (torch's folder, or the one of Python's packages that
// torch is in). Both are looked for when a table is built and opened when a call first asks for
// them: a program that needs nothing of torch loads nothing of it.
#ifndef OPWIRE_KERNELS_TORCH_LIBRARY_H_
#define OPWIRE_KERNELS_TORCH_LIBRARY_H_

#include <string>

#include "ir/base/status.h"
#include "kernels/select/variant.h"
#include "kernels/torch/interface.h"

namespace opwire::torch {

// The module's file. NOT_FOUND says where it was looked for.
StatusOr<std::string> FindModule();
// Opens that file, which stays loaded. FAILED_PRECONDITION: it or a library of its is missing, or
// it is built for another executor.
StatusOr<const opw_torch_module*> OpenModule(const std::string& path);

// The variants "torch" of a cpu or a CUDA device, which outlives the table. Without a module they
// are there, unavailable, with the reason.
void AddTorch(VariantTable& table, Device& device);

}  // namespace opwire::torch

#endif  // OPWIRE_KERNELS_TORCH_LIBRARY_H_

// A shared library of kernels: the first as OPW_KERNEL of abi.h exports it, `opwire_kernel`, others
// beside it as `opwire_kernel_N`.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::shared_ptr<const Library> library,
//       Library::Open(entry.object));
//   const opw_kernel& kernel = library->kernel();
#ifndef OPWIRE_KERNELS_JIT_LIBRARY_H_
#define OPWIRE_KERNELS_JIT_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"

namespace opwire::jit {

class Library {
 public:
  // Loads it into this process, local and bound at once, until the last reference is gone. Its
  // initialisers run, so a child process goes first where it is a user's (executor/ops/trial.h).
  // FAILED_PRECONDITION where it does not load, or lacks one of its first `kernels` kernels, or one
  // is of another interface.
  static StatusOr<std::shared_ptr<const Library>> Open(const std::string& path, int kernels = 1);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const opw_kernel& kernel(int index = 0) const { return *kernels_[index]; }

 private:
  explicit Library(void* handle) : handle_(handle) {}

  void* const handle_;
  std::vector<const opw_kernel*> kernels_;
};

// What kernel `index` is exported as.
std::string KernelSymbol(int index);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_LIBRARY_H_

// A shared library of kernels. The first is exported as OPW_KERNEL of abi.h defines,
// `opwire_kernel`; the others are `opwire_kernel_N`.
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
  // Loads it into this process, with local symbols bound at once. It stays loaded until the last
  // reference is released. Its initialisers run, so a user's library is first loaded in a child
  // process (executor/ops/trial.h). FAILED_PRECONDITION if it does not load, lacks one of its first
  // `kernels` kernels, or has one of another interface version.
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

// The exported name of kernel `index`.
std::string KernelSymbol(int index);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_LIBRARY_H_

// A shared library with one kernel, as OPW_KERNEL of abi.h exports it.
#ifndef OPWIRE_KERNELS_JIT_LIBRARY_H_
#define OPWIRE_KERNELS_JIT_LIBRARY_H_

#include <memory>
#include <string>

#include "ir/base/status.h"
#include "kernels/abi.h"

namespace opwire::jit {

class Library {
 public:
  // Loads it into this process, local and bound at once, until the last reference is gone. Its initialisers run, so a child process
  // goes first (executor/ops/trial.h). FAILED_PRECONDITION where it does not load, exports no kernel, or one of another interface.
  static StatusOr<std::shared_ptr<const Library>> Open(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const opw_kernel& kernel() const { return *kernel_; }

 private:
  Library(void* handle, const opw_kernel* kernel) : handle_(handle), kernel_(kernel) {}

  void* handle_;
  const opw_kernel* kernel_;
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_LIBRARY_H_

// Loading kernels.
#include "kernels/jit/library.h"

#include <dlfcn.h>

namespace opwire::jit {

StatusOr<std::shared_ptr<const Library>> Library::Open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    return FailedPrecondition("it does not load: {}", why ? why : path);
  }
  const auto* kernel = static_cast<const opw_kernel*>(dlsym(handle, "opwire_kernel"));
  std::shared_ptr<const Library> library(new Library(handle, kernel));
  if (!kernel) return FailedPrecondition("{}: expected a kernel, which OPW_KERNEL of <opwire/abi.h> exports", path);
  if (kernel->abi_version != OPW_ABI_VERSION) return FailedPrecondition("{}: expected a kernel of interface {}, got {}", path, OPW_ABI_VERSION, kernel->abi_version);
  if (!kernel->run) return FailedPrecondition("{}: its kernel has no run", path);
  return library;
}

Library::~Library() { dlclose(handle_); }

}  // namespace opwire::jit

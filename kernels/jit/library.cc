// Loading kernels.
#include "kernels/jit/library.h"

#include <dlfcn.h>

#include <cfenv>

namespace opwire::jit {
namespace {

// A library that was linked for fast arithmetic sets its loader's thread to flush subnormals to
// zero: this puts that back.
class KeepArithmetic {
 public:
  KeepArithmetic() { std::fegetenv(&before_); }
  ~KeepArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

}  // namespace

StatusOr<std::shared_ptr<const Library>> Library::Open(const std::string& path, int kernels) {
  const KeepArithmetic keep;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    return FailedPrecondition("it does not load: {}", why ? why : path);
  }
  const std::shared_ptr<Library> library(new Library(handle));
  for (int i = 0; i < kernels; ++i) {
    const std::string symbol = KernelSymbol(i);
    const auto* const kernel = static_cast<const opw_kernel*>(dlsym(handle, symbol.c_str()));
    if (!kernel)
      return FailedPrecondition(
          "{}: expected a kernel {}, as OPW_KERNEL of <opwire/abi.h> exports it", path, symbol);
    if (kernel->abi_version != OPW_ABI_VERSION)
      return FailedPrecondition("{}: expected a kernel of interface {}, got {}", path,
                                OPW_ABI_VERSION, kernel->abi_version);
    if (!kernel->run) return FailedPrecondition("{}: {} has no run", path, symbol);
    library->kernels_.push_back(kernel);
  }
  return library;
}

Library::~Library() {
  const KeepArithmetic keep;
  dlclose(handle_);
}

std::string KernelSymbol(int index) {
  return index == 0 ? "opwire_kernel" : fmt::format("opwire_kernel_{}", index);
}

}  // namespace opwire::jit

// Exceptions of libtorch as the failures that the interface knows.
#ifndef OPWIRE_KERNELS_TORCH_MODULE_EXCEPTIONS_H_
#define OPWIRE_KERNELS_TORCH_MODULE_EXCEPTIONS_H_

#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/torch/interface.h"

namespace opwire::torch_module {

// Thrown by the module's allocator if the executor refuses memory.
class Exhausted : public std::bad_alloc {
 public:
  explicit Exhausted(std::string why) : why_(std::move(why)) {}
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

// Runs work(context). If it throws, reports the reason to the host and returns OPW_FAILED.
int Guarded(const opw_torch_host& host, void (*work)(void*), void* context) noexcept;
template <typename F>
int Guarded(const opw_torch_host& host, F&& work) noexcept {
  return Guarded(
      host, [](void* f) { (*static_cast<std::remove_reference_t<F>*>(f))(); }, &work);
}

}  // namespace opwire::torch_module

#endif  // OPWIRE_KERNELS_TORCH_MODULE_EXCEPTIONS_H_

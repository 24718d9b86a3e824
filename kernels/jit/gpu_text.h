// Texts of GPU units: embedded sources with what they include, each once.
#ifndef OPWIRE_KERNELS_JIT_GPU_TEXT_H_
#define OPWIRE_KERNELS_JIT_GPU_TEXT_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace opwire::jit {

// Appends an embedded file (kernels/embedded.h), those that it includes by path before it. `seen`
// holds what is in `out`.
void AppendGpuSource(std::string_view file, std::set<std::string, std::less<>>& seen,
                     std::string& out);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_GPU_TEXT_H_

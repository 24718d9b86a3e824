// Texts of GPU units: embedded sources with the files that they include, each once.
#ifndef OPWIRE_KERNELS_JIT_GPU_TEXT_H_
#define OPWIRE_KERNELS_JIT_GPU_TEXT_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace opwire::jit {

// Appends an embedded file (kernels/embedded.h), and before it those that it includes by path.
// `seen` has the files that are already in `out`.
void AppendGpuSource(std::string_view file, std::set<std::string, std::less<>>& seen,
                     std::string& out);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_GPU_TEXT_H_

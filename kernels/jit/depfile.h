// The list of headers that a compiler writes next to an object, in the language of make.
#ifndef OPWIRE_KERNELS_JIT_DEPFILE_H_
#define OPWIRE_KERNELS_JIT_DEPFILE_H_

#include <string>
#include <string_view>
#include <vector>

namespace opwire::jit {

// The prerequisites of its first rule, in their order, unescaped.
std::vector<std::string> Prerequisites(std::string_view depfile);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_DEPFILE_H_

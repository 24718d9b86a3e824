// The headers that compiled code is written to, as they stood when this program was built. Generated from kernels/abi.h and
// kernels/jit/gpu.h by cmake/embed.cmake.
#ifndef OPWIRE_KERNELS_JIT_EMBEDDED_H_
#define OPWIRE_KERNELS_JIT_EMBEDDED_H_

#include <string_view>

namespace opwire::jit {

extern const std::string_view kAbiHeader;  // <opwire/abi.h>, the host compiler's
extern const std::string_view kGpuHeader;  // <opwire/gpu.h>, the only one that the RTC compilers see

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_EMBEDDED_H_

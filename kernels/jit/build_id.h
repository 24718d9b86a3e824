// The build ID of an ELF file, which its linker computes from its contents. It is the same wherever
// and whenever the file is installed.
#ifndef OPWIRE_KERNELS_JIT_BUILD_ID_H_
#define OPWIRE_KERNELS_JIT_BUILD_ID_H_

#include <string>

namespace opwire::jit {

// In hex; empty if the file cannot be read, is no 64-bit ELF file of this byte order, or has none.
// Reads only headers and notes. Any thread.
std::string BuildIdOf(const std::string& path);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_BUILD_ID_H_

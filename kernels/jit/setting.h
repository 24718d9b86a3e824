// Settings from environment variables.
#ifndef OPWIRE_KERNELS_JIT_SETTING_H_
#define OPWIRE_KERNELS_JIT_SETTING_H_

#include <cstdlib>
#include <string>

namespace opwire::jit {

// The value of a variable of the environment; empty if it is not set.
inline std::string Setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_SETTING_H_

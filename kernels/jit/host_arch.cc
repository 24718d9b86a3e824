// The levels of x86-64 as compilers name them.
#include "kernels/jit/toolchain.h"

namespace opwire::jit {

std::string HostArch() {
#if defined(__x86_64__)
  // These also check the system: it must save the registers.
  const auto has_v4 = [] {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  };
  const auto has_v3 = [] {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
           __builtin_cpu_supports("movbe");
  };
  return !has_v3() ? "x86-64-v2" : has_v4() ? "x86-64-v4" : "x86-64-v3";
#else
  return "armv8-a";
#endif
}

}  // namespace opwire::jit

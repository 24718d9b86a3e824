// Executors that rows of whole systems start.
#ifndef OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_
#define OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_

#include <string>
#include <vector>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {

constexpr double kPatience = 30;  // seconds within which an executor must be ready

inline StatusOr<Session> OpenSession(const std::string& executor, int64_t memory_bytes = 0) {
  SessionOptions options;
  options.device = executor;
  options.memory_bytes = memory_bytes;
  return OpenWithin(options, kPatience);
}

// `ahead`: whether it compiles kernels in the background, "on" or "off".
inline std::vector<std::string> ExecutorCommand(const Gpu& gpu, const Setup& setup,
                                                const std::string& name, const std::string& ahead) {
  return {setup.build + "/bin/opwire-executor",
          "--device",
          gpu.options().device,
          "--name",
          name,
          "--ahead",
          ahead,
          "--log-level",
          "error"};
}

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_

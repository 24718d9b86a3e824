// Executors that rows of whole systems start.
#ifndef OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_
#define OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {

constexpr double kPatience = 30;  // seconds until an executor must be there

inline StatusOr<Session> OpenSession(const std::string& executor, int64_t memory_bytes = 0) {
  SessionOptions options;
  options.device = executor;
  options.memory_bytes = memory_bytes;
  return OpenWithin(options, kPatience);
}

// `ahead`: whether it compiles behind what it serves, "on" or "off".
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

// A variable of the environment, as long as this lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_GPU_EXECUTORS_H_

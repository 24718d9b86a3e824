// The emulator's compiler, with what it is asked for counted, refused or held up.
#ifndef OPWIRE_TESTS_KERNELS_COUNTING_TOOLCHAIN_H_
#define OPWIRE_TESTS_KERNELS_COUNTING_TOOLCHAIN_H_

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/jit/toolchain.h"

namespace opwire::jit {

class CountingToolchain final : public Toolchain {
 public:
  // What the toolchains of a test share.
  struct Calls {
    int compiled = 0, running = 0, most_running = 0;
    int priority = 0;  // of the thread that asked last, as setpriority counts
    std::function<Status(const CompileRequest&)>
        before;               // not OK: that comes of it; empty: nothing
    std::string unavailable;  // why there is no compiler; empty: there is
    std::mutex mutex;         // guards the numbers
  };
  explicit CountingToolchain(Calls& calls) : calls_(calls) { none_.reason = calls.unavailable; }

  std::string_view name() const override { return emu_->name(); }
  std::string_view backend() const override { return emu_->backend(); }
  const ToolchainFacts& facts() override { return none_.available() ? emu_->facts() : none_; }
  StatusOr<CompiledObject> Compile(const CompileRequest& request,
                                   const std::string& directory) override {
    {
      std::lock_guard lock(calls_.mutex);
      ++calls_.compiled;
      calls_.most_running = std::max(calls_.most_running, ++calls_.running);
      calls_.priority = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
    }
    const Status refused = calls_.before ? calls_.before(request) : absl::OkStatus();
    StatusOr<CompiledObject> object =
        refused.ok() ? emu_->Compile(request, directory) : StatusOr<CompiledObject>(refused);
    std::lock_guard lock(calls_.mutex);
    --calls_.running;
    return object;
  }

 private:
  Calls& calls_;
  ToolchainFacts none_;
  const std::unique_ptr<Toolchain> emu_ = EmuCompiler({});
};

}  // namespace opwire::jit

#endif  // OPWIRE_TESTS_KERNELS_COUNTING_TOOLCHAIN_H_

// Compiles kernels of a GPU before programs need them (kernels/ops/gpu/ahead.h), in the background:
// by processes at a low priority, while the executor serves. A request for a kernel does not wait
// for the unit of that kernel.
//
//   AheadBuild ahead(code, [&] { return gpu::AheadUnits(device); });
//   ahead.Start(processes);        // once the executor serves
//   ahead.Facts();                 // for the report
#ifndef OPWIRE_EXECUTOR_SERVE_AHEAD_H_
#define OPWIRE_EXECUTOR_SERVE_AHEAD_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ir/base/status.h"
#include "kernels/ops/gpu/ahead.h"

namespace opwire::executor {

class AheadBuild {
 public:
  using Units = std::function<StatusOr<std::vector<gpu::AheadUnit>>()>;

  enum class State : uint8_t {
    kOff,
    kCompiling,
    kReady,
    kIncomplete
  };  // kIncomplete: with a reason
  struct Progress {
    State state = State::kOff;
    size_t kernels = 0, ready = 0;       // of the list, and those of them that Code has
    size_t units = 0, cached_units = 0;  // cached: of those that are ready
    double seconds = 0;                  // from the start to the end, or to the present
    std::string reason;                  // why it is off, or the first error
  };

  // Off, for this reason.
  explicit AheadBuild(std::string reason);
  // Off until it is started. `units` is called once, on a thread of AheadBuild's.
  AheadBuild(std::shared_ptr<gpu::Code> code, Units units);
  AheadBuild(const AheadBuild&) = delete;
  // Begins no more units, and waits for those that are being compiled. A caller that cannot wait
  // ends the process.
  ~AheadBuild();

  // Starts up to `processes` processes at a time. Call once. If there is a reason against it,
  // nothing begins.
  void Start(int processes);
  // Whether no unit is being compiled or will be.
  bool Settled() const;
  Progress progress() const;
  // The progress as JSON: {"state": "compiling", "kernels": 148, "ready": 50, ...}. Any thread.
  std::string Facts() const;

 private:
  void Run(int processes);
  void Compile(const std::vector<gpu::AheadUnit>& units);
  void Finish(const Status& failure);

  const std::shared_ptr<gpu::Code> code_;
  const Units units_;
  std::atomic<bool> ended_{false};
  std::atomic<size_t> next_{0};  // of the units
  mutable std::mutex mutex_;     // guards the following members
  Progress progress_;
  int64_t began_ = 0;  // nanoseconds of the monotonic clock
  std::thread thread_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_AHEAD_H_

// What other threads may know of the run on the device thread, and how they stop it.
#ifndef OPWIRE_EXECUTOR_SERVE_GATE_H_
#define OPWIRE_EXECUTOR_SERVE_GATE_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "executor/run/run.h"
#include "ir/wire/clock.h"

namespace opwire::executor {

struct RunIdentity {
  uint64_t session = 0;
  uint32_t attachment = 0;
  uint64_t seq = 0;
  bool operator==(const RunIdentity&) const = default;
};

class RunGate {
 public:
  explicit RunGate(std::atomic<uint32_t>& stop) : stop_(stop) {}

  // `alarm` is to call CheckDeadline at the time that it is given; a later call replaces an earlier
  // one. Without it deadlines are kept between slices only.
  void SetAlarm(std::function<void(Nanos)> alarm) {
    std::lock_guard lock(mutex_);
    alarm_ = std::move(alarm);
  }

  // Device thread: around every slice of a run.
  void Enter(const RunIdentity& run, Nanos now, Nanos deadline) {
    std::lock_guard lock(mutex_);
    current_ = run;
    since_ = now;
    deadline_ = deadline;
    running_ = true;
    if (deadline < alarm_at_) Arm(deadline);
    stop_.store(draining_ ? static_cast<uint32_t>(StopReason::kDraining) : 0,
                std::memory_order_relaxed);
  }
  void Leave() {
    std::lock_guard lock(mutex_);
    running_ = false;
    stop_.store(0, std::memory_order_relaxed);
  }

  // Any thread. True when that run was on the device: its slice ends soon.
  bool Cancel(const RunIdentity& run) {
    std::lock_guard lock(mutex_);
    if (!running_ || !(current_ == run)) return false;
    stop_.store(static_cast<uint32_t>(StopReason::kCancelled), std::memory_order_relaxed);
    return true;
  }
  // Any thread, when the alarm rang: stops the run whose deadline has passed.
  void CheckDeadline(Nanos now) {
    std::lock_guard lock(mutex_);
    alarm_at_ = kNever;
    if (!running_) return;
    if (now >= deadline_)
      stop_.store(static_cast<uint32_t>(StopReason::kDeadline), std::memory_order_relaxed);
    else if (deadline_ != kNever)
      Arm(deadline_);
  }
  // Stops whatever runs, now and later.
  void Drain() {
    std::lock_guard lock(mutex_);
    draining_ = true;
    if (running_)
      stop_.store(static_cast<uint32_t>(StopReason::kDraining), std::memory_order_relaxed);
  }
  // 0: idle; else since when the present slice runs.
  Nanos busy_since() {
    std::lock_guard lock(mutex_);
    return running_ ? since_ : 0;
  }

 private:
  void Arm(Nanos when) {
    if (!alarm_) return;
    alarm_at_ = when;
    alarm_(when);
  }

  std::mutex mutex_;
  std::atomic<uint32_t>& stop_;
  std::function<void(Nanos)> alarm_;
  Nanos alarm_at_ = kNever;  // when it rings next
  RunIdentity current_;
  Nanos since_ = 0;
  Nanos deadline_ = kNever;
  bool running_ = false;
  bool draining_ = false;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_GATE_H_

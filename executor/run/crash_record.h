// The position of the device thread, in a mapped file that outlives the process. After a crash, the
// next process can report the kernel and node that failed.
//
// The file begins with the names of all variants, so that one store of two numbers notes a step.
#ifndef OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_
#define OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace opwire::executor {

// Instead of a signal: the device failed, and the process ended itself.
inline constexpr int kDeviceFaultSignal = 128;

// The end of a process in the middle of a run.
struct Death {
  std::string kernel;  // "matmul@onednn"; empty: it did not end in a run
  std::string where;   // "node %3 of @mlp"
  int fault =
      0;  // kDeviceFaultSignal, or the signal that the process itself raised, SIGXCPU for a kernel
          // that did not return, SIGTERM for one that called exit; 0: it was killed from outside

  bool any() const { return !kernel.empty(); }
  // "matmul@onednn (node %3 of @mlp), by signal 11 (Segmentation fault)".
  std::string ToString() const;
};

class CrashRecord {
  static constexpr size_t kLabelBytes = 144, kMaxLabels = 8192;
  struct Contents {
    uint64_t magic;
    uint64_t incarnation;
    uint64_t mark;
    uint32_t running;  // 1 from a run's first step to its last
    uint32_t labels;
    uint32_t fault;
    uint32_t reserved;
    char program[64];
    // Then `labels` names of kLabelBytes each.
  };

 public:
  // Maps the file again. If an earlier process ended in a run, `death` reports it.
  static StatusOr<std::unique_ptr<CrashRecord>> Open(const std::string& path, uint64_t incarnation,
                                                     Death& death);
  ~CrashRecord();

  // Instead of labels, for steps that have none: a group of nodes, and all others.
  static constexpr uint32_t kFused = UINT32_MAX - 1, kCopy = UINT32_MAX;
  // Sets the labels of steps, "op@variant". Labels are only ever added. Beyond 8192 a step is noted
  // without one.
  void SetLabels(const std::vector<std::string>& labels);

  // `node`: below kNoNode, of the function that is run (called -1) or of a function of the module
  // that it calls. The number of a called function is below 2047.
  static constexpr uint32_t kNodeBits = 21, kNoNode = (1u << kNodeBits) - 1;
  static uint64_t Mark(uint32_t node, uint32_t label, int32_t called = -1) {
    return uint64_t{label} << 32 | static_cast<uint32_t>(called + 1) << kNodeBits | node;
  }
  static uint32_t NodeOf(uint64_t mark) { return static_cast<uint32_t>(mark) & kNoNode; }
  static int32_t CalledOf(uint64_t mark) {
    return static_cast<int32_t>(static_cast<uint32_t>(mark) >> kNodeBits) - 1;
  }

  // While it lives, kernels of the program run. `record` may be null. One at a time.
  class Running {
   public:
    Running(CrashRecord* record, const std::string& program) : c_(record ? record->c_ : nullptr) {
      if (!c_) return;
      const size_t n = std::min(program.size(), sizeof(c_->program) - 1);
      std::memcpy(c_->program, program.data(), n);
      c_->program[n] = 0;
      c_->running = 1;
    }
    ~Running() {
      if (c_) c_->running = 0;
    }
    Running(const Running&) = delete;
    void Step(uint64_t mark) const {
      if (c_) __atomic_store_n(&c_->mark, mark, __ATOMIC_RELAXED);
    }

   private:
    Contents* const c_;
  };

  // Afterwards this process notes the fault by which it ends. On this thread it does so even if the
  // stack is full. Call once, for one record that lives as long as the process.
  void CatchFaults();
  // Any thread, and signal handlers.
  void NoteFault(int signal) {
    __atomic_store_n(&c_->fault, static_cast<uint32_t>(signal), __ATOMIC_RELAXED);
  }

  // Any thread: the label of the last step that began.
  std::string label() const { return LabelAt(*c_, __atomic_load_n(&c_->mark, __ATOMIC_RELAXED)); }

 private:
  CrashRecord() = default;
  static constexpr size_t kBytes =
      sizeof(Contents) + kMaxLabels * kLabelBytes;  // unused label space takes no space in the file
  static std::string LabelAt(const Contents& c, uint64_t mark);
  static Death DeathIn(int fd);

  Contents* c_ = nullptr;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_

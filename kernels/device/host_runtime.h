// The runtime that kernels on the CPU are called with: ranges over OpenMP threads, a stop word, and
// the raised flags of a run.
#ifndef OPWIRE_KERNELS_DEVICE_HOST_RUNTIME_H_
#define OPWIRE_KERNELS_DEVICE_HOST_RUNTIME_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/abi.h"
#include "kernels/device/device.h"

namespace opwire {

// Where a value out of its domain was met, as one number: step * 2^48 + position * 256 + operand.
inline constexpr int kStepShift = 48;
void SetOutOfRange(uint64_t key, RunFlags& flags);

// The opw_runtime is the base, so that the callbacks find their object without a table. One caller
// at a time; the callbacks that a kernel's ranges use may come from any thread.
class HostRuntime : private opw_runtime {
 public:
  // Binds the threads to `pinned`, one core each, if it is not empty. REQUIRES: threads >= 1,
  // pinned is empty or has `threads` entries.
  HostRuntime(int threads, std::vector<int> pinned);
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  opw_runtime* abi() { return this; }
  std::atomic<uint32_t>& stop() { return stop_; }
  void NoteStep(uint32_t step) { step_.store(step, std::memory_order_relaxed); }
  RunFlags TakeFlags();

  // While one lives, regions that the calling thread opens are the team's, late or not: for
  // measurements that are kept.
  struct Together {
    Together();
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;
  };

 private:
  static void ParallelFor(opw_runtime* r, int64_t n, int64_t grain, opw_body body, void* context);
  static void OutOfRange(opw_runtime* r, int operand, int64_t position);
  static void Raise(opw_runtime* r, uint32_t flags);
  void BindTeam();
  // Notes a region: the time per range of the fastest thread, and the time from the first to the
  // last thread's end.
  void NoteRegion(int64_t range_nanos, int64_t waited_nanos, int64_t now);

  std::vector<int> pinned_;
  // How long the caller does all, in nanoseconds, until when, and when the first last changed. The
  // calling thread's.
  int64_t alone_ = 0, alone_until_ = 0, noted_ = 0;
  std::atomic<uint32_t> stop_{0};
  std::atomic<uint32_t> raised_{0};
  std::atomic<uint32_t> step_{0};
  // A key as for SetOutOfRange. The least key belongs to the first step, and there to the first
  // position; kNone: no report.
  static constexpr uint64_t kNone = ~uint64_t{0};
  std::atomic<uint64_t> out_of_range_{kNone};
};

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_HOST_RUNTIME_H_

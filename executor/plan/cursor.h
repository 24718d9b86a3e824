// The position of a run among an instance's steps: the next step, and the iterations of its loops
// so far.
#ifndef OPWIRE_EXECUTOR_PLAN_CURSOR_H_
#define OPWIRE_EXECUTOR_PLAN_CURSOR_H_

#include <cstdint>
#include <vector>

#include "executor/plan/instance.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class Cursor {
 public:
  // Moves before the first step of an instance.
  void Reset(const Instance& instance) {
    at_ = begun_ = 0;
    iterations_.assign(instance.loops(), {});
  }

  uint32_t at() const { return at_; }
  void MoveTo(uint32_t step) { at_ = step; }
  // No step from this one on has begun. It is the present step, or the farthest step before a loop
  // went back.
  uint32_t begun() const { return begun_ > at_ ? begun_ : at_; }

  // Executes the control step `s`, which is the present one, and moves to its successor. `device`:
  // the owner of the memory; null if it is the host's. With a device, the read of a value waits for
  // the work that makes the value, which arrives in 8 bytes of host memory at `pinned`. Returns
  // whether it waited, so that the device has no work left. OUT_OF_RANGE if a loop would exceed its
  // max_trips.
  StatusOr<bool> Follow(const Step& s, Device* device, void* pinned);

  // Iterations of the loop of a kIteration step.
  int64_t IterationsDone(const Step& iteration) const {
    return iterations_[iteration.control().loop].done;
  }
  int64_t IterationsAllowed(const Step& iteration) const {
    return iterations_[iteration.control().loop].most;
  }
  // Notes that a device ran the loop's iterations up to number `done` without the host. The run
  // continues at `step`. All of the loop's steps are before `end`.
  void SkipIterations(const Step& iteration, int64_t done, uint32_t step, uint32_t end) {
    iterations_[iteration.control().loop].done = done;
    begun_ = begun_ > end ? begun_ : end;
    at_ = step;
  }

 private:
  struct Iterations {
    int64_t done = 0, most = 0;
  };

  uint32_t at_ = 0, begun_ = 0;
  std::vector<Iterations> iterations_;  // by loop
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_CURSOR_H_

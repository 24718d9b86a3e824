// Where a run is among an instance's steps: which comes next, and how often its loops have gone
// round.
#ifndef OPWIRE_EXECUTOR_PLAN_CURSOR_H_
#define OPWIRE_EXECUTOR_PLAN_CURSOR_H_

#include <cstdint>
#include <vector>

#include "executor/plan/instance.h"
#include "kernels/device/device.h"

namespace opwire {

class Cursor {
 public:
  // Before the first step of an instance.
  void Reset(const Instance& instance) {
    at_ = begun_ = 0;
    trips_.assign(instance.loops(), {});
  }

  uint32_t at() const { return at_; }
  void MoveTo(uint32_t step) { at_ = step; }
  // No step from this one on has begun: the one it is at, or where loops went back the farthest.
  uint32_t begun() const { return begun_ > at_ ? begun_ : at_; }

  // Does the control step `s`, at which it is, and moves on. `device`: whose the memory is, where
  // it is not the host's; then what the step depends on is waited for, and comes by 8 bytes of host
  // memory at `pinned`. Whether it waited so, until nothing is left to do there. OUT_OF_RANGE where
  // a loop would go round more often than its max_trips.
  StatusOr<bool> Follow(const Step& s, Device* device, void* pinned);

  // Of the loop of a trip step.
  int64_t TripsDone(const Step& trip) const { return trips_[trip.control().loop].done; }
  int64_t TripsAllowed(const Step& trip) const { return trips_[trip.control().loop].most; }
  // A device made its trips up to number `done` by itself: on at `step`. All of the loop's steps
  // lie before `end`.
  void Went(const Step& trip, int64_t done, uint32_t step, uint32_t end) {
    trips_[trip.control().loop].done = done;
    begun_ = begun_ > end ? begun_ : end;
    at_ = step;
  }

 private:
  struct Trips {
    int64_t done = 0, most = 0;
  };

  uint32_t at_ = 0, begun_ = 0;
  std::vector<Trips> trips_;  // by loop
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_CURSOR_H_

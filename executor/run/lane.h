// Scratch memory for runs: a few lanes of the device's address space, backed on demand. A run uses
// one lane from its first step to its last, so a suspended run keeps its values.
#ifndef OPWIRE_EXECUTOR_RUN_LANE_H_
#define OPWIRE_EXECUTOR_RUN_LANE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/store.h"
#include "ir/base/status.h"

namespace opwire {

struct Lane {
  uint8_t* base = nullptr;
  int64_t committed = 0;  // included in the budget
  bool busy = false;
};

class Lanes {
 public:
  // Each lane may grow to `capacity` bytes. Device and budget outlive the lanes.
  Lanes(Device& device, int64_t capacity, MemoryBudget* budget)
      : device_(device), capacity_(capacity), budget_(budget) {}
  ~Lanes();
  Lanes(const Lanes&) = delete;

  // Returns a free lane with at least `bytes`. nullptr: all are busy (wait for one).
  // RESOURCE_EXHAUSTED: beyond the budget. Prefers the lane that was used last: its pages are warm.
  StatusOr<Lane*> Acquire(int64_t bytes);
  void Release(Lane* lane) { lane->busy = false; }
  // The bytes of free lanes.
  int64_t IdleBytes() const;
  // Releases the pages of free lanes.
  void Trim();

  int64_t capacity() const { return capacity_; }

  static constexpr int kMaxLanes = 16;

 private:
  Device& device_;
  int64_t capacity_;
  MemoryBudget* budget_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_LANE_H_

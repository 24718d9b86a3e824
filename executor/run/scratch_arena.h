// Scratch memory for runs: a few arenas of the device's address space, backed on demand. A run uses
// one arena from its first step to its last, so a suspended run keeps its values.
#ifndef OPWIRE_EXECUTOR_RUN_SCRATCH_ARENA_H_
#define OPWIRE_EXECUTOR_RUN_SCRATCH_ARENA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/store.h"
#include "ir/base/status.h"

namespace opwire::executor {

struct ScratchArena {
  uint8_t* base = nullptr;
  int64_t committed = 0;  // included in the budget
  bool busy = false;
};

class ScratchArenas {
 public:
  // Each arena may grow to `capacity` bytes. Device and budget outlive the arenas.
  ScratchArenas(Device& device, int64_t capacity, MemoryBudget* budget)
      : device_(device), capacity_(capacity), budget_(budget) {}
  ~ScratchArenas();
  ScratchArenas(const ScratchArenas&) = delete;

  // Returns a free arena with at least `bytes`. nullptr: all are busy (wait for one).
  // RESOURCE_EXHAUSTED: beyond the budget. Prefers the arena that was used last: its pages are
  // warm.
  StatusOr<ScratchArena*> Acquire(int64_t bytes);
  void Release(ScratchArena* arena) { arena->busy = false; }
  // The bytes of free arenas.
  int64_t IdleBytes() const;
  // Releases the pages of free arenas.
  void Trim();

  int64_t capacity() const { return capacity_; }

  static constexpr int kMaxArenas = 16;

 private:
  Device& device_;
  int64_t capacity_;
  MemoryBudget* budget_;
  std::vector<std::unique_ptr<ScratchArena>> arenas_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_RUN_SCRATCH_ARENA_H_

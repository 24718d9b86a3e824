// Loads tensors of files into memory that only the device can access. A load has two chunks of
// pinned memory: one is copied while the next is read.
#ifndef OPWIRE_EXECUTOR_SERVE_PINNED_STAGING_H_
#define OPWIRE_EXECUTOR_SERVE_PINNED_STAGING_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executor/serve/files.h"
#include "executor/store/store.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class PinnedStaging {
 public:
  static constexpr int64_t kChunkBytes = int64_t{4} << 20;

  // Chunks count in the budget, including unused ones. Device and budget outlive this, and this
  // outlives the pairs.
  PinnedStaging(Device& device, MemoryBudget* host_budget)
      : device_(device), host_budget_(host_budget) {}
  ~PinnedStaging() { Trim(); }
  PinnedStaging(const PinnedStaging&) = delete;

  // The memory of one load. It ends on the device thread.
  class ChunkPair {
   public:
    ChunkPair(PinnedStaging& landing, uint8_t* chunks) : staging_(landing), chunks_(chunks) {}
    ~ChunkPair() { staging_.spare_.push_back(chunks_); }
    ChunkPair(const ChunkPair&) = delete;
    uint8_t* chunks() const { return chunks_; }

   private:
    PinnedStaging& staging_;
    uint8_t* chunks_;
  };

  // Device thread: returns memory for a load. RESOURCE_EXHAUSTED reports its size and the limit
  // that stopped it.
  StatusOr<std::shared_ptr<const ChunkPair>> Take();
  // Device thread: an event after all work that uses memory which a load may get.
  StatusOr<EventId> Now() { return device_.Record(0); }
  // A worker: copies the elements of the file's tensor to `to`, through the chunks of a pair, once
  // the work before `after` is done. No copy is pending when it returns.
  Status Load(const OpenedTensor& file, uint8_t* to, uint8_t* chunks, EventId after);
  // Device thread: releases unused memory.
  void Trim();

 private:
  // Waits until the work before the event is done.
  Status WaitFor(EventId event);

  Device& device_;
  MemoryBudget* const host_budget_;
  std::optional<StreamId> stream_;  // created by the first load
  std::vector<uint8_t*> spare_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_PINNED_STAGING_H_

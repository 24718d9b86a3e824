// Tensors' bytes in the order of a kernel's own, kept beside the tensors that they are of: made where a kernel meets a tensor again, given up where memory is short.
#ifndef OPWIRE_EXECUTOR_STORE_PACKED_H_
#define OPWIRE_EXECUTOR_STORE_PACKED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/blocks.h"
#include "executor/store/store.h"
#include "kernels/select/variant.h"

namespace opwire {

class PackedCopies;

// One of them. The block that it is of holds it, and runs that read it do.
class PackedCopy {
 public:
  ~PackedCopy();
  PackedCopy(const PackedCopy&) = delete;
  PackedCopy& operator=(const PackedCopy&) = delete;

  void* data() const;
  // Whether it is what the packing makes of a tensor of this encoding and shape.
  bool Is(const Packing& packing, const opw_tensor& of) const;

 private:
  friend class PackedCopies;
  PackedCopy(PackedCopies& all, const Packing& packing, const opw_tensor& of, int64_t at, int64_t bytes);

  PackedCopies& all_;
  const Packing& packing_;
  const uint8_t encoding_;
  const Extents shape_;
  const int64_t at_;  // in their memory
  const Reservation held_;
  Buffer* of_ = nullptr;  // the block that holds it; null: none does yet
};

// All of an executor whose device's memory is the host's, one behind the other in memory of their own, so that they lie on huge pages. The device thread's.
class PackedCopies {
 public:
  // They hold `limit` bytes at the most, which count in the budget and go, the oldest first, when others ask it for more than it has. Device and budget outlive this, and this
  // outlives all blocks.
  PackedCopies(Device& device, MemoryBudget* budget, int64_t limit);
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  int64_t bytes() const { return bytes_; }

  // The block's copy of this kind; null: it has none.
  static std::shared_ptr<const PackedCopy> Of(const BufferRef& block, const Packing& packing, const opw_tensor& of);
  // Notes that a run reads the block with such a kernel, `often` where it does so many times; whether a copy pays: it was read so before, or will be.
  static bool Pays(const BufferRef& block, bool often);
  // Memory for a copy, which `of` says the sizes of; null: there is none, or not beside the others.
  std::shared_ptr<PackedCopy> Take(const Packing& packing, const opw_tensor& of);
  // All of it is written: the block has it until it is written itself or ends. REQUIRES: its bytes are as they were when Take was called.
  static void Keep(std::shared_ptr<PackedCopy> copy, const BufferRef& block);

 private:
  friend class PackedCopy;
  void GiveUp(int64_t bytes);

  Device& device_;
  MemoryBudget* const budget_;
  const int64_t limit_;
  int64_t bytes_ = 0;
  uint8_t* base_ = nullptr;  // null until the first is made
  Blocks blocks_;
  std::vector<PackedCopy*> all_;  // the oldest first
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_STORE_PACKED_H_

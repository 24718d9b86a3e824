// Packed copies of tensors, in a kernel's own layout, kept in addition to the tensors. A copy is
// made when a kernel reads a tensor again, and dropped when memory is short.
#ifndef OPWIRE_EXECUTOR_STORE_PACKED_H_
#define OPWIRE_EXECUTOR_STORE_PACKED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/blocks.h"
#include "executor/store/store.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

class PackedCopies;

// One packed copy, from its first piece to its last. Its block holds it, and so do runs that make
// or read it.
class PackedCopy {
 public:
  ~PackedCopy();
  PackedCopy(const PackedCopy&) = delete;
  PackedCopy& operator=(const PackedCopy&) = delete;

  void* data() const;
  int64_t pieces() const { return size_.pieces; }
  // The number of finished pieces. If all are finished, kernels can read it. The caller that writes
  // further pieces calls Add.
  int64_t done() const { return done_; }
  void Add(int64_t pieces) { done_ += pieces; }

 private:
  friend class PackedCopies;
  PackedCopy(PackedCopies& all, const Packing& packing, const opw_tensor& of, Packing::Size size,
             int64_t at);
  // Whether it is the copy of a tensor of this encoding and shape by this packing.
  bool Is(const Packing& packing, const opw_tensor& of) const;

  PackedCopies& all_;
  const Packing& packing_;
  const Packing::Size size_;
  const uint8_t encoding_;
  const Extents shape_;
  const int64_t at_;  // in the memory of PackedCopies
  const Reservation held_;
  int64_t done_ = 0;
  Buffer* of_ = nullptr;
};

// All copies of an executor whose device's memory is the host's. They are contiguous in memory of
// their own, so that it has huge pages. Used by the device thread only.
class PackedCopies {
 public:
  // The copies take at most `limit` bytes, which count in the budget. Device and budget outlive
  // this, and this outlives all blocks.
  PackedCopies(Device& device, MemoryBudget* budget, int64_t limit);
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  int64_t bytes() const { return bytes_; }

  // Returns the block's whole copy of this kind; null if it has none.
  static std::shared_ptr<PackedCopy> Of(const BufferRef& block, const Packing& packing,
                                        const opw_tensor& of);
  // Notes that a run may read the block with such a kernel, `often` if it is in a loop. Returns
  // whether a copy pays: the block was read before, or will be. After a copy was dropped, many more
  // reads are necessary.
  static bool Pays(const BufferRef& block, bool often);
  // Returns the block's copy of this kind, even if unfinished, or a new one instead of another
  // kind's. Null: there is no room in addition to the others.
  std::shared_ptr<PackedCopy> Make(const BufferRef& block, const Packing& packing,
                                   const opw_tensor& of);
  // The bytes of copies that no run uses.
  int64_t IdleBytes() const;
  // Drops such copies, the oldest first, until `bytes` bytes are free or none is left.
  void GiveUp(int64_t bytes);

 private:
  friend class PackedCopy;
  // Whether only its block holds it.
  static bool Idle(const PackedCopy& copy);

  Device& device_;
  MemoryBudget* const budget_;
  const int64_t limit_;
  int64_t bytes_ = 0;
  uint8_t* base_ = nullptr;  // null before the first copy
  Blocks blocks_;
  std::vector<PackedCopy*> all_;  // the oldest first
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_STORE_PACKED_H_

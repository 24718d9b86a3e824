// Tensors' bytes in the order of a kernel's own, kept beside the tensors that they are of: made
// where a kernel meets a tensor again, given up where memory is short.
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

// One of them, from its first piece to its last. The block that it is of holds it, and runs that
// make it or read it do.
class PackedCopy {
 public:
  ~PackedCopy();
  PackedCopy(const PackedCopy&) = delete;
  PackedCopy& operator=(const PackedCopy&) = delete;

  void* data() const;
  int64_t pieces() const { return size_.pieces; }
  // How many are there; all, for kernels to read it. Who writes further ones says so.
  int64_t done() const { return done_; }
  void Add(int64_t pieces) { done_ += pieces; }

 private:
  friend class PackedCopies;
  PackedCopy(PackedCopies& all, const Packing& packing, const opw_tensor& of, Packing::Size size,
             int64_t at);
  // Whether it is what the packing makes of a tensor of this encoding and shape.
  bool Is(const Packing& packing, const opw_tensor& of) const;

  PackedCopies& all_;
  const Packing& packing_;
  const Packing::Size size_;
  const uint8_t encoding_;
  const Extents shape_;
  const int64_t at_;  // in their memory
  const Reservation held_;
  int64_t done_ = 0;
  Buffer* of_ = nullptr;
};

// All of an executor whose device's memory is the host's, one behind the other in memory of their
// own, so that they lie on huge pages. The device thread's.
class PackedCopies {
 public:
  // They hold `limit` bytes at the most, which count in the budget. Device and budget outlive this,
  // and this outlives all blocks.
  PackedCopies(Device& device, MemoryBudget* budget, int64_t limit);
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  int64_t bytes() const { return bytes_; }

  // The block's whole copy of this kind; null: it has none.
  static std::shared_ptr<PackedCopy> Of(const BufferRef& block, const Packing& packing,
                                        const opw_tensor& of);
  // Notes that a run may read the block with such a kernel, `often` where it is in a loop; whether
  // a copy pays: it was met before, or will be. After one was given up it has to be met many more
  // times.
  static bool Pays(const BufferRef& block, bool often);
  // The block's copy of this kind, as far as it is made, or a new one in place of another kind's;
  // null: there is no room beside the others.
  std::shared_ptr<PackedCopy> Make(const BufferRef& block, const Packing& packing,
                                   const opw_tensor& of);
  // The bytes of copies that no run holds.
  int64_t IdleBytes() const;
  // Gives such copies up, the oldest first, until so many bytes are free or none is left.
  void GiveUp(int64_t bytes);

 private:
  friend class PackedCopy;
  // Whether its block alone holds it.
  static bool Idle(const PackedCopy& copy);

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

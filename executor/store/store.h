// The tensors of one session: by id, with shared storage, states and a quota.
#ifndef OPWIRE_EXECUTOR_STORE_STORE_H_
#define OPWIRE_EXECUTOR_STORE_STORE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "executor/store/segment.h"
#include "ir/base/type.h"
#include "kernels/device/device.h"

namespace opwire::executor {

struct TensorKey {
  uint32_t attachment = 0;
  uint64_t counter = 0;
  bool operator==(const TensorKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorKey& k) {
    return H::combine(std::move(h), k.attachment, k.counter);
  }
};
std::string ToString(const TensorKey& key);  // "3:17"

// Extents without heap memory.
struct Extents {
  std::array<int64_t, kMaxRank> value{};
  int rank = 0;
  Extents() = default;
  explicit Extents(std::span<const int64_t> s) : rank(static_cast<int>(s.size())) {
    std::copy(s.begin(), s.end(), value.begin());
  }
  std::span<const int64_t> span() const { return {value.data(), static_cast<size_t>(rank)}; }
};

// The most memory that the executor may hold over all sessions, or one session.
struct MemoryBudget {
  int64_t limit = 0;
  int64_t in_use = 0;
  int64_t peak = 0;
  // Called with the number of missing bytes if some do not fit. Frees memory that can be made
  // again, if that is enough. May be empty.
  std::function<void(int64_t)> reclaim;

  bool Fits(int64_t bytes) {
    if (const int64_t missing = bytes - (limit - in_use); missing > 0 && reclaim) reclaim(missing);
    return bytes <= limit - in_use;
  }
  void Take(int64_t bytes) {
    in_use += bytes;
    peak = std::max(peak, in_use);
  }
};

// Bytes of a budget, which are returned to it at the destruction. One thread's.
class Reservation {
 public:
  Reservation() = default;
  Reservation(MemoryBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {
    budget_->Take(bytes_);
  }
  Reservation(Reservation&& o) noexcept
      : budget_(std::exchange(o.budget_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Reservation& operator=(Reservation o) noexcept {
    std::swap(budget_, o.budget_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Reservation() {
    if (budget_) budget_->in_use -= bytes_;
  }
  int64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

class Buffer;

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* b);
  BufferRef(const BufferRef& o);
  BufferRef(BufferRef&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  BufferRef& operator=(BufferRef o) noexcept {
    std::swap(b_, o.b_);
    return *this;
  }
  ~BufferRef();
  Buffer* operator->() const { return b_; }
  explicit operator bool() const { return b_ != nullptr; }
  bool operator==(const BufferRef&) const = default;
  // Whether others hold the bytes, too. Then a tensor must be moved before it is written.
  bool Shared() const;

 private:
  Buffer* b_ = nullptr;
};

// A block of a session's memory, shared by the tensors, transfers and runs that hold it, or another
// session's block that was granted to it. One thread's.
class Buffer {
 public:
  // For kernels and the device's copies; the host may use it only in the segment.
  uint8_t* data() const { return data_; }
  // In the session's segment; -1: it is in the device's memory or another session's.
  int64_t offset() const { return in_segment_ ? at_ : -1; }
  int64_t bytes() const { return bytes_; }
  // Whether it is another session's block.
  bool granted() const { return static_cast<bool>(of_); }
  // The block that owns these bytes: this one, or the other session's.
  Buffer& origin() { return of_ ? of_->origin() : *this; }
  // A run is about to write it, so packed copies of its bytes are invalid.
  void Written() { packed_.reset(), packing_met_ = 0; }

 private:
  friend class BufferRef;
  friend class PackedCopies;
  friend class Store;
  class Store* store_ = nullptr;
  uint8_t* data_ = nullptr;
  int64_t at_ = 0;  // in the segment, or in the device's memory
  int64_t bytes_ = 0;
  int32_t references_ = 0;
  bool in_segment_ = true;
  std::shared_ptr<class Store> owner_;        // of `of_`
  BufferRef of_;                              // the other session's block
  std::shared_ptr<class PackedCopy> packed_;  // its packed bytes (packed.h)
  int packing_met_ = 0,
      packing_needs_ = 1;  // the number of runs that could have used a packed copy, and the number
                           // for which one is made
};

inline BufferRef::BufferRef(Buffer* b) : b_(b) { ++b_->references_; }
inline BufferRef::BufferRef(const BufferRef& o) : b_(o.b_) {
  if (b_) ++b_->references_;
}
inline bool BufferRef::Shared() const { return b_->references_ > 1 || b_->granted(); }

// A range of a tensor's bytes that the host can access. If the device's memory is the host's, it is
// in the tensor's own block. Otherwise, and if the block is another session's, it is in a block of
// the segment through which the bytes are copied.
class Staged {
 public:
  uint8_t* data() const { return shared_->data() + at_; }
  int64_t offset() const { return shared_->offset() + at_; }  // in the segment
  int64_t bytes() const { return bytes_; }
  // Keeps the bytes at their address.
  const BufferRef& block() const { return shared_; }
  explicit operator bool() const { return static_cast<bool>(shared_); }

 private:
  friend class Store;
  BufferRef tensor_, shared_;
  int64_t from_ = 0, at_ = 0;  // the begin of the range, in the tensor and in the shared block
  int64_t bytes_ = 0;
  int64_t copied_ = 0;
};

enum class TensorState : uint8_t {
  kWritable = 0,  // the client fills it; no request may use it before Seal
  kReady = 1,
  kPoisoned = 2,  // a run failed after it began to write the tensor
  kFailed = 3,    // the run that was to make it failed: uses have its error
};

struct Tensor {
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  TensorState state = TensorState::kReady;
  bool pinned_by_run = false;  // an inout of an active run
  Extents shape;
  BufferRef buffer;
  Staged filling;  // kWritable: the range that the client fills
  std::string name;
  Status error;  // kPoisoned, kFailed
};

class Store : public std::enable_shared_from_this<Store> {
 public:
  // `quota`: at most that many bytes of tensors, rounded as blocks are. They count in `budget` too.
  // On a device with memory of its own, the blocks through which they are copied count in
  // `host_budget`. Device and budgets outlive the store.
  static StatusOr<std::unique_ptr<Store>> Create(int64_t quota, int64_t max_tensors, Device& device,
                                                 MemoryBudget* budget, MemoryBudget* host_budget);
  ~Store();

  // Returns a block of its own for a tensor. RESOURCE_EXHAUSTED reports the request, the bytes in
  // use and the limit that stopped it.
  StatusOr<BufferRef> Allocate(int64_t bytes);
  // Returns another store's block as one of this. It counts in this store's quota too, and the
  // other's memory stays while this holds it. RESOURCE_EXHAUSTED as Allocate. REQUIRES: the other
  // is held by a shared pointer.
  StatusOr<BufferRef> Share(const BufferRef& of);
  // The session has ended: frees its tensors. Those that others hold stay. No other calls may
  // follow.
  void End();
  // Returns room for a range of a tensor that the host can access. Its contents are undefined
  // before a copy. RESOURCE_EXHAUSTED as Allocate.
  StatusOr<Staged> Stage(const BufferRef& tensor, int64_t offset, int64_t bytes);
  StatusOr<Staged> Stage(const BufferRef& tensor) { return Stage(tensor, 0, tensor->bytes()); }
  // Copies a part of the tensor to the host, or back: at most 64 MiB. Returns true after the last
  // step.
  StatusOr<bool> StepToHost(Staged& s);
  StatusOr<bool> StepToDevice(Staged& s);
  // Copies a whole tensor, in all steps, to memory that the executor's own threads can access.
  StatusOr<Staged> ToHost(const BufferRef& tensor);
  // Copies one tensor's bytes to another of the same size.
  Status CopyInto(const BufferRef& to, const BufferRef& from);
  // Releases free memory.
  void Trim();

  // Puts a tensor under a key, and replaces a tensor under that key. RESOURCE_EXHAUSTED beyond the
  // number of tensors. Then Find returns the same error for this key, or the error of the tensor
  // that was to be put.
  StatusOr<Tensor*> Put(const TensorKey& key, Tensor tensor);
  // Whether `more` additional tensors fit.
  Status CheckRoom(int64_t more) const;
  Tensor* FindAny(const TensorKey& key);
  // Returns the tensor, if it is ready for use. NOT_FOUND; FAILED_PRECONDITION before Seal;
  // DATA_LOSS; the error of the run that failed; or the reason of Put's refusal.
  StatusOr<Tensor*> Find(const TensorKey& key);
  bool Erase(const TensorKey& key);

  template <typename F>
  void ForEach(F f) const {
    for (const auto& [key, tensor] : tensors_) f(key, tensor);
  }

  Segment& segment() { return *segment_; }
  int64_t in_use() const { return quota_.in_use; }
  int64_t quota() const { return quota_.limit; }
  // For the session's memory other than tensors.
  MemoryBudget& quota_budget() { return quota_; }
  int64_t count() const { return static_cast<int64_t>(tensors_.size()); }

 private:
  friend class BufferRef;
  // The part of the device's memory that holds the tensors, if that is not the host's.
  struct OnDevice {
    OnDevice(Device& d, int64_t capacity) : device(d), blocks(capacity) {}
    ~OnDevice() {
      if (base) device.Unreserve(base);
    }
    Device& device;
    uint8_t* base = nullptr;
    Blocks blocks;
  };

  explicit Store(Device& device) : device_(device) {}
  Status CheckQuota(int64_t bytes);
  StatusOr<int64_t> TakeOnDevice(int64_t bytes);
  Buffer* NewBuffer(int64_t bytes);
  BufferRef NewBlock(int64_t at, int64_t bytes, bool in_segment);
  void Release(Buffer* b);
  StatusOr<bool> Step(Staged& s, bool to_host);
  // A range of consecutive keys that Put refused.
  struct Refused {
    uint32_t attachment;
    uint64_t first, last;
    Status why;
  };
  void NoteRefused(const TensorKey& key, const Status& why);

  Device& device_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<OnDevice> on_device_;  // null: the segment is the device's memory
  MemoryBudget* host_budget_ = nullptr;
  MemoryBudget* budget_ = nullptr;
  MemoryBudget quota_;
  int64_t staged_ =
      0;  // bytes of the segment through which tensors in the device's memory are copied
  int64_t max_tensors_ = 0;
  bool ended_ = false;
  absl::flat_hash_map<TensorKey, Tensor> tensors_;
  std::deque<Refused> refused_;  // the newest last
  std::vector<Buffer*> spare_;   // buffer objects for reuse
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

inline BufferRef::~BufferRef() {
  if (b_ && --b_->references_ == 0) b_->store_->Release(b_);
}

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_STORE_STORE_H_

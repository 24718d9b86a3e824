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

namespace opwire {

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

// What the executor may hold over all sessions, or a session of its own.
struct MemoryBudget {
  int64_t limit = 0;
  int64_t in_use = 0;
  int64_t peak = 0;
  // Is asked for so many bytes where they do not fit, and gives back what can be made anew, if that
  // is enough. May be empty.
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

// Bytes of a budget, which it has back when this ends. One thread's.
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
  // Whether others hold the bytes, too: who writes a tensor of it moves the tensor first.
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
  // In the session's segment; -1: it lies in the device's memory or another session's.
  int64_t offset() const { return in_segment_ ? at_ : -1; }
  int64_t bytes() const { return bytes_; }
  // Whether it is another session's.
  bool granted() const { return static_cast<bool>(of_); }
  // The block whose bytes these are: this one, or the other session's.
  Buffer& origin() { return of_ ? of_->origin() : *this; }
  // A run is about to write it: what was made of its bytes is theirs no more.
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
  std::shared_ptr<class PackedCopy> packed_;  // its bytes in a kernel's own order (packed.h)
  int packing_met_ = 0,
      packing_needs_ =
          1;  // by how many runs that have one it was met, and has to be for one to be made
};

inline BufferRef::BufferRef(Buffer* b) : b_(b) { ++b_->references_; }
inline BufferRef::BufferRef(const BufferRef& o) : b_(o.b_) {
  if (b_) ++b_->references_;
}
inline bool BufferRef::Shared() const { return b_->references_ > 1 || b_->granted(); }

// A range of a tensor's bytes where the host reaches them: in the tensor's own block where the
// device's memory is the host's, else, and where the block is another session's, in a block of the
// segment that they are copied through.
class Staged {
 public:
  uint8_t* data() const { return shared_->data() + at_; }
  int64_t offset() const { return shared_->offset() + at_; }  // in the segment
  int64_t bytes() const { return bytes_; }
  // What keeps the bytes where they are.
  const BufferRef& block() const { return shared_; }
  explicit operator bool() const { return static_cast<bool>(shared_); }

 private:
  friend class Store;
  BufferRef tensor_, shared_;
  int64_t from_ = 0, at_ = 0;  // where the range begins in the tensor, and in the shared block
  int64_t bytes_ = 0;
  int64_t copied_ = 0;
};

enum class TensorState : uint8_t {
  kWritable = 0,  // the client fills it; no request may use it before Seal
  kReady = 1,
  kPoisoned = 2,  // a run failed after it began to write it
  kFailed = 3,    // the run that was to make it failed: uses inherit its error
};

struct Tensor {
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  TensorState state = TensorState::kReady;
  bool pinned_by_run = false;  // an inout of a run that has begun
  Extents shape;
  BufferRef buffer;
  Staged filling;  // kWritable: what the client fills
  std::string name;
  Status error;  // kPoisoned, kFailed
};

class Store : public std::enable_shared_from_this<Store> {
 public:
  // `quota` bytes of tensors at most, rounded as blocks are. They count in `budget` too; what they
  // are copied through, on a device with memory of its own, in `host_budget`. Device and budgets
  // outlive the store.
  static StatusOr<std::unique_ptr<Store>> Create(int64_t quota, int64_t max_tensors, Device& device,
                                                 MemoryBudget* budget, MemoryBudget* host_budget);
  ~Store();

  // A block of its own for a tensor. RESOURCE_EXHAUSTED says what was asked, what is in use and
  // which limit stopped it.
  StatusOr<BufferRef> Allocate(int64_t bytes);
  // Another store's block as one of this: it counts in this one's quota too, and the other's memory
  // stays as long as this holds it. RESOURCE_EXHAUSTED as Allocate. REQUIRES: the other is held by
  // a shared pointer.
  StatusOr<BufferRef> Share(const BufferRef& of);
  // The session has ended: frees its tensors. What others hold of them stays, and nothing else is
  // asked of the store.
  void End();
  // Room for a range of a tensor where the host reaches it; what lies there is undefined until it
  // was copied. RESOURCE_EXHAUSTED as Allocate.
  StatusOr<Staged> Stage(const BufferRef& tensor, int64_t offset, int64_t bytes);
  StatusOr<Staged> Stage(const BufferRef& tensor) { return Stage(tensor, 0, tensor->bytes()); }
  // A step of the copy from the tensor to the host, or back: 64 MiB at the most. True: that was the
  // last.
  StatusOr<bool> StepToHost(Staged& s);
  StatusOr<bool> StepToDevice(Staged& s);
  // All of a tensor where the executor's own threads reach it, in all steps.
  StatusOr<Staged> ToHost(const BufferRef& tensor);
  // One tensor's bytes into another's of the same size.
  Status CopyInto(const BufferRef& to, const BufferRef& from);
  // Gives free memory back.
  void Trim();

  // Puts a tensor under a key, in place of what was there. RESOURCE_EXHAUSTED beyond the number of
  // tensors; then Find gives the same for this key, or the error of the tensor that was to be put.
  StatusOr<Tensor*> Put(const TensorKey& key, Tensor tensor);
  // Whether `more` further tensors fit.
  Status CheckRoom(int64_t more) const;
  Tensor* FindAny(const TensorKey& key);
  // The tensor, ready for use; NOT_FOUND, FAILED_PRECONDITION before Seal, DATA_LOSS, the error of
  // the run that failed, or why Put refused it.
  StatusOr<Tensor*> Find(const TensorKey& key);
  bool Erase(const TensorKey& key);

  template <typename F>
  void ForEach(F f) const {
    for (const auto& [key, tensor] : tensors_) f(key, tensor);
  }

  Segment& segment() { return *segment_; }
  int64_t in_use() const { return quota_.in_use; }
  int64_t quota() const { return quota_.limit; }
  // For what a session holds beside tensors.
  MemoryBudget& quota_budget() { return quota_; }
  int64_t count() const { return static_cast<int64_t>(tensors_.size()); }

 private:
  friend class BufferRef;
  // The part of the device's memory that holds the tensors, where that is not the host's.
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
  // Keys that Put refused, in a row.
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
      0;  // bytes of the segment that tensors in the device's memory are copied through
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

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_STORE_STORE_H_

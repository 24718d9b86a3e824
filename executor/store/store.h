// The tensors of one session: by id, with shared storage, states and a quota.
#ifndef OPWIRE_EXECUTOR_STORE_STORE_H_
#define OPWIRE_EXECUTOR_STORE_STORE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "executor/store/segment.h"
#include "ir/base/type.h"

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
  explicit Extents(std::span<const int64_t> s) : rank(static_cast<int>(s.size())) { std::copy(s.begin(), s.end(), value.begin()); }
  std::span<const int64_t> span() const { return {value.data(), static_cast<size_t>(rank)}; }
};

// What the executor may hold over all sessions, or a session of its own.
struct MemoryBudget {
  int64_t limit = 0;
  int64_t in_use = 0;
  int64_t peak = 0;

  bool Fits(int64_t bytes) const { return bytes <= limit - in_use; }
  void Take(int64_t bytes) {
    in_use += bytes;
    peak = std::max(peak, in_use);
  }
};

// Bytes of a budget, which it has back when this ends. One thread's.
class Reservation {
 public:
  Reservation() = default;
  Reservation(MemoryBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) { budget_->Take(bytes_); }
  Reservation(Reservation&& o) noexcept : budget_(std::exchange(o.budget_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
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

// A block of a session's segment, shared by the tensors, transfers and runs that hold it. One thread's.
class Buffer {
 public:
  uint8_t* data() const { return data_; }
  int64_t offset() const { return offset_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class BufferRef;
  friend class Store;
  class Store* store_ = nullptr;
  uint8_t* data_ = nullptr;
  int64_t offset_ = 0;
  int64_t bytes_ = 0;
  int32_t references_ = 0;
};

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* b) : b_(b) { ++b_->references_; }
  BufferRef(const BufferRef& o) : b_(o.b_) { if (b_) ++b_->references_; }
  BufferRef(BufferRef&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  BufferRef& operator=(BufferRef o) noexcept { std::swap(b_, o.b_); return *this; }
  ~BufferRef();
  Buffer* operator->() const { return b_; }
  explicit operator bool() const { return b_ != nullptr; }
  bool Shared() const { return b_->references_ > 1; }

 private:
  Buffer* b_ = nullptr;
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
  std::string name;
  Status error;  // kPoisoned, kFailed
};

class Store {
 public:
  // `quota` bytes at most, rounded as the segment does; `budget` outlives the store.
  static StatusOr<std::unique_ptr<Store>> Create(int64_t quota, int64_t max_tensors, MemoryBudget* budget);
  ~Store();

  // A block of its own. RESOURCE_EXHAUSTED says what was asked, what is in use and which limit stopped it.
  StatusOr<BufferRef> Allocate(int64_t bytes);

  // Puts a tensor under a key, in place of what was there. RESOURCE_EXHAUSTED beyond the number of tensors.
  StatusOr<Tensor*> Put(const TensorKey& key, Tensor tensor);
  // Whether `more` further tensors fit.
  Status CheckRoom(int64_t more) const;
  Tensor* FindAny(const TensorKey& key);
  // The tensor, ready for use; NOT_FOUND, FAILED_PRECONDITION before Seal, DATA_LOSS or the error of the run that failed.
  StatusOr<Tensor*> Find(const TensorKey& key);
  bool Erase(const TensorKey& key);
  void EraseAttachment(uint32_t attachment);

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
  Store() = default;
  void Release(Buffer* b);

  std::unique_ptr<Segment> segment_;
  MemoryBudget* budget_ = nullptr;
  MemoryBudget quota_;
  int64_t max_tensors_ = 0;
  absl::flat_hash_map<TensorKey, Tensor> tensors_;
  std::vector<Buffer*> spare_;                      // buffer objects for reuse
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

inline BufferRef::~BufferRef() {
  if (b_ && --b_->references_ == 0) b_->store_->Release(b_);
}

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_STORE_STORE_H_

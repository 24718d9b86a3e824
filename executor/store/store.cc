// Tensors of a session.
#include "executor/store/store.h"

#include <algorithm>

namespace opwire::executor {
namespace {

constexpr int64_t kCopiedAtOnce = int64_t{64} << 20;

}  // namespace

std::string ToString(const TensorKey& key) {
  return fmt::format("{}:{}", key.attachment, key.counter);
}

StatusOr<std::unique_ptr<Store>> Store::Create(int64_t quota, int64_t max_tensors, Device& device,
                                               MemoryBudget* budget, MemoryBudget* host_budget) {
  auto store = std::unique_ptr<Store>(new Store(device));
  const bool on_device = !device.info().host_memory;
  OPWIRE_ASSIGN_OR_RETURN(store->segment_, Segment::Create(quota, on_device ? &device : nullptr));
  if (on_device) {
    store->on_device_ = std::make_unique<OnDevice>(device, quota);
    OPWIRE_ASSIGN_OR_RETURN(void* const base, device.Reserve(quota));
    store->on_device_->base = static_cast<uint8_t*>(base);
  }
  store->quota_.limit = quota;
  store->max_tensors_ = max_tensors;
  store->budget_ = budget;
  store->host_budget_ = host_budget;
  return store;
}

Store::~Store() { tensors_.clear(); }

Buffer* Store::NewBuffer(int64_t bytes) {
  if (spare_.empty()) {
    buffers_.push_back(std::make_unique<Buffer>());
    spare_.push_back(buffers_.back().get());
  }
  Buffer* b = spare_.back();
  spare_.pop_back();
  b->store_ = this;
  b->bytes_ = bytes;
  return b;
}

BufferRef Store::NewBlock(int64_t at, int64_t bytes, bool in_segment) {
  Buffer* const b = NewBuffer(bytes);
  b->at_ = at;
  b->data_ = (in_segment ? segment_->base() : on_device_->base) + at;
  b->in_segment_ = in_segment;
  return BufferRef(b);
}

StatusOr<int64_t> Store::TakeOnDevice(int64_t bytes) {
  OPWIRE_ASSIGN_OR_RETURN(const int64_t at, on_device_->blocks.Allocate(bytes));
  Status backed = device_.Resize(on_device_->base, on_device_->blocks.top());
  if (backed.ok()) return at;
  on_device_->blocks.Free(at, bytes);
  return backed;
}

Status Store::CheckQuota(int64_t bytes) {
  if (quota_.Fits(Blocks::Rounded(bytes))) return absl::OkStatus();
  return ResourceExhausted(
      "over quota: asked for {} bytes, the session holds {} of {}; free tensors or ask for a "
      "larger quota",
      bytes, quota_.in_use, quota_.limit);
}

StatusOr<BufferRef> Store::Share(const BufferRef& of) {
  OPWIRE_RETURN_IF_ERROR(CheckQuota(of->bytes()));
  quota_.Take(Blocks::Rounded(of->bytes()));
  Buffer* const b = NewBuffer(of->bytes());
  b->data_ = of->data();
  b->in_segment_ = false;
  b->owner_ = of->store_->shared_from_this();
  b->of_ = of;
  return BufferRef(b);
}

StatusOr<BufferRef> Store::Allocate(int64_t bytes) {
  OPWIRE_RETURN_IF_ERROR(CheckQuota(bytes));
  const int64_t rounded = Blocks::Rounded(bytes);
  if (!budget_->Fits(rounded)) {
    return ResourceExhausted("out of memory: asked for {} bytes, the executor holds {} of {}",
                             bytes, budget_->in_use, budget_->limit);
  }
  OPWIRE_ASSIGN_OR_RETURN(const int64_t at,
                          on_device_ ? TakeOnDevice(bytes) : segment_->Allocate(bytes));
  quota_.Take(rounded);
  budget_->Take(rounded);
  return NewBlock(at, bytes, !on_device_);
}

StatusOr<Staged> Store::Stage(const BufferRef& tensor, int64_t offset, int64_t bytes) {
  Staged s;
  s.tensor_ = tensor;
  s.from_ = offset;
  s.bytes_ = bytes;
  if (!on_device_ && !tensor->granted()) {
    s.shared_ = tensor;
    s.at_ = offset;
    return s;
  }
  if (!on_device_) {
    // Its clients do not map the other session's segment.
    OPWIRE_ASSIGN_OR_RETURN(s.shared_, Allocate(bytes));
    return s;
  }
  const int64_t rounded = Blocks::Rounded(bytes);
  if (rounded > segment_->capacity() - staged_) {
    return ResourceExhausted(
        "the session's segment: a transfer takes {} bytes, views and transfers hold {} of {}; end "
        "some or ask for a larger quota",
        bytes, staged_, segment_->capacity());
  }
  if (!host_budget_->Fits(rounded)) {
    return ResourceExhausted(
        "out of the host's memory: a transfer takes {} bytes, the executor holds {} of {}", bytes,
        host_budget_->in_use, host_budget_->limit);
  }
  OPWIRE_ASSIGN_OR_RETURN(const int64_t at, segment_->Allocate(bytes));
  host_budget_->Take(rounded);
  staged_ += rounded;
  s.shared_ = NewBlock(at, bytes, true);
  return s;
}

StatusOr<bool> Store::Step(Staged& s, bool to_host) {
  if (s.shared_ == s.tensor_ || s.copied_ == s.bytes_) return true;
  const int64_t left = s.bytes_ - s.copied_;
  const int64_t piece = on_device_ ? segment_->BeginCopy(s.offset() + s.copied_, left)
                                   : std::min(left, kCopiedAtOnce);
  uint8_t* const host = s.data() + s.copied_;
  uint8_t* const device = s.tensor_->data() + s.from_ + s.copied_;
  OPWIRE_RETURN_IF_ERROR(device_.Copy(to_host ? host : device, to_host ? device : host, piece, 0));
  OPWIRE_RETURN_IF_ERROR(device_.Synchronize());
  s.copied_ += piece;
  return s.copied_ == s.bytes_;
}

StatusOr<bool> Store::StepToHost(Staged& s) { return Step(s, true); }
StatusOr<bool> Store::StepToDevice(Staged& s) { return Step(s, false); }

StatusOr<Staged> Store::ToHost(const BufferRef& tensor) {
  if (!on_device_) {
    Staged s;
    s.tensor_ = s.shared_ = tensor;
    s.bytes_ = tensor->bytes();
    return s;
  }
  OPWIRE_ASSIGN_OR_RETURN(Staged s, Stage(tensor));
  for (bool done = false; !done;) {
    OPWIRE_ASSIGN_OR_RETURN(done, StepToHost(s));
  }
  return s;
}

Status Store::CopyInto(const BufferRef& to, const BufferRef& from) {
  return device_.Copy(to->data(), from->data(), from->bytes(), 0);
}

void Store::Trim() {
  segment_->Trim();
  if (!on_device_) return;
  on_device_->blocks.Coalesce();
  // What cannot be given back now can be later.
  (void)device_.Resize(on_device_->base, on_device_->blocks.top());
}

void Store::End() {
  tensors_.clear();
  ended_ = true;
  if (weak_from_this().use_count() > 1) Trim();  // else it all goes at once
}

void Store::Release(Buffer* b) {
  const int64_t rounded = Blocks::Rounded(b->bytes_);
  b->Written();
  b->packing_needs_ = 1;
  if (b->granted()) {
    quota_.in_use -= rounded;
    // The block goes before its store, which may have been waiting for nothing else.
    const std::shared_ptr<Store> owner = std::move(b->owner_);
    const BufferRef of = std::move(b->of_);
    spare_.push_back(b);
    return;
  }
  if (on_device_ && b->in_segment_) {
    host_budget_->in_use -= rounded;
    staged_ -= rounded;
  } else {
    quota_.in_use -= rounded;
    budget_->in_use -= rounded;
  }
  if (b->in_segment_)
    segment_->Free(b->at_, b->bytes_);
  else
    on_device_->blocks.Free(b->at_, b->bytes_);
  spare_.push_back(b);
  if (ended_) Trim();
}

Status Store::CheckRoom(int64_t more) const {
  if (count() + more <= max_tensors_) return absl::OkStatus();
  return ResourceExhausted("the session: expected at most {} tensors, got {}; free some",
                           max_tensors_, count() + more);
}

StatusOr<Tensor*> Store::Put(const TensorKey& key, Tensor tensor) {
  if (key.attachment == 0)
    return InvalidArgument("tensor {}: expected an attachment of at least 1", ToString(key));
  const auto it = tensors_.find(key);
  if (it != tensors_.end()) {
    if (it->second.pinned_by_run)
      return FailedPrecondition("tensor {} is being written by a run", ToString(key));
    it->second = std::move(tensor);
    return &it->second;
  }
  if (const Status room = CheckRoom(1); !room.ok()) {
    NoteRefused(key, tensor.state == TensorState::kFailed ? tensor.error : room);
    return room;
  }
  return &tensors_.emplace(key, std::move(tensor)).first->second;
}

// Clients number tensors as they make them, so refused keys come in rows.
void Store::NoteRefused(const TensorKey& key, const Status& why) {
  constexpr size_t kMostRows = 64;
  if (!refused_.empty()) {
    Refused& row = refused_.back();
    if (row.attachment == key.attachment && row.last + 1 == key.counter && row.why == why) {
      row.last = key.counter;
      return;
    }
  }
  if (refused_.size() == kMostRows) refused_.pop_front();
  refused_.push_back({key.attachment, key.counter, key.counter, why});
}

Tensor* Store::FindAny(const TensorKey& key) {
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? nullptr : &it->second;
}

StatusOr<Tensor*> Store::Find(const TensorKey& key) {
  Tensor* t = FindAny(key);
  if (!t) {
    for (const Refused& row : refused_) {
      if (row.attachment == key.attachment && row.first <= key.counter && key.counter <= row.last)
        return row.why;
    }
    return NotFound("tensor {} is not in the session; it was freed or never made", ToString(key));
  }
  switch (t->state) {
    case TensorState::kReady:
      return t;
    case TensorState::kWritable:
      return FailedPrecondition("tensor {} is still being filled by its client; seal it first",
                                ToString(key));
    case TensorState::kPoisoned:
    case TensorState::kFailed:
      return t->error;
  }
  return Internal("tensor states");
}

bool Store::Erase(const TensorKey& key) {
  const auto it = tensors_.find(key);
  if (it == tensors_.end() || it->second.pinned_by_run) return false;
  tensors_.erase(it);
  return true;
}

}  // namespace opwire::executor

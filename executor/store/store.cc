// Tensors of a session.
#include "executor/store/store.h"

namespace opwire {

std::string ToString(const TensorKey& key) { return fmt::format("{}:{}", key.attachment, key.counter); }

StatusOr<std::unique_ptr<Store>> Store::Create(int64_t quota, int64_t max_tensors, MemoryBudget* budget) {
  auto store = std::unique_ptr<Store>(new Store);
  OPWIRE_ASSIGN_OR_RETURN(store->segment_, Segment::Create(quota));
  store->quota_.limit = quota;
  store->max_tensors_ = max_tensors;
  store->budget_ = budget;
  return store;
}

Store::~Store() { tensors_.clear(); }

StatusOr<BufferRef> Store::Allocate(int64_t bytes) {
  const int64_t rounded = Segment::Rounded(bytes);
  if (!quota_.Fits(rounded)) {
    return ResourceExhausted("over quota: asked for {} bytes, the session holds {} of {}; free tensors or ask for a larger quota", bytes,
                             quota_.in_use, quota_.limit);
  }
  if (!budget_->Fits(rounded)) {
    return ResourceExhausted("out of memory: asked for {} bytes, the executor holds {} of {}", bytes, budget_->in_use, budget_->limit);
  }
  OPWIRE_ASSIGN_OR_RETURN(const int64_t offset, segment_->Allocate(bytes));
  quota_.Take(rounded);
  budget_->Take(rounded);
  if (spare_.empty()) {
    buffers_.push_back(std::make_unique<Buffer>());
    spare_.push_back(buffers_.back().get());
  }
  Buffer* b = spare_.back();
  spare_.pop_back();
  b->store_ = this;
  b->offset_ = offset;
  b->data_ = segment_->base() + offset;
  b->bytes_ = bytes;
  return BufferRef(b);
}

void Store::Release(Buffer* b) {
  const int64_t rounded = Segment::Rounded(b->bytes_);
  quota_.in_use -= rounded;
  budget_->in_use -= rounded;
  segment_->Free(b->offset_, b->bytes_);
  spare_.push_back(b);
}

Status Store::CheckRoom(int64_t more) const {
  if (count() + more <= max_tensors_) return absl::OkStatus();
  return ResourceExhausted("the session: expected at most {} tensors, got {}; free some", max_tensors_, count() + more);
}

StatusOr<Tensor*> Store::Put(const TensorKey& key, Tensor tensor) {
  if (key.attachment == 0) return InvalidArgument("tensor {}: expected an attachment of at least 1", ToString(key));
  const auto it = tensors_.find(key);
  if (it != tensors_.end()) {
    if (it->second.pinned_by_run) return FailedPrecondition("tensor {} is being written by a run", ToString(key));
    it->second = std::move(tensor);
    return &it->second;
  }
  OPWIRE_RETURN_IF_ERROR(CheckRoom(1));
  return &tensors_.emplace(key, std::move(tensor)).first->second;
}

Tensor* Store::FindAny(const TensorKey& key) {
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? nullptr : &it->second;
}

StatusOr<Tensor*> Store::Find(const TensorKey& key) {
  Tensor* t = FindAny(key);
  if (!t) return NotFound("tensor {} is not in the session; it was freed or never made", ToString(key));
  switch (t->state) {
    case TensorState::kReady: return t;
    case TensorState::kWritable: return FailedPrecondition("tensor {} is still being filled by its client; seal it first", ToString(key));
    case TensorState::kPoisoned:
    case TensorState::kFailed: return t->error;
  }
  return Internal("tensor states");
}

bool Store::Erase(const TensorKey& key) {
  const auto it = tensors_.find(key);
  if (it == tensors_.end() || it->second.pinned_by_run) return false;
  tensors_.erase(it);
  return true;
}

void Store::EraseAttachment(uint32_t attachment) {
  absl::erase_if(tensors_, [&](const auto& entry) { return entry.first.attachment == attachment && !entry.second.pinned_by_run; });
}

}  // namespace opwire

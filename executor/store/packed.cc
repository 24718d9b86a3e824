// Copies of blocks in kernels' own orders.
#include "executor/store/packed.h"

namespace opwire {

PackedCopy::PackedCopy(PackedCopies& all, const Packing& packing, const opw_tensor& of, int64_t at, int64_t bytes)
    : all_(all), packing_(packing), encoding_(of.encoding), shape_({of.shape, of.rank}), at_(at), held_(all.budget_, bytes) {
  all_.all_.push_back(this);
  all_.bytes_ += bytes;
}

PackedCopy::~PackedCopy() {
  std::erase(all_.all_, this);
  all_.bytes_ -= held_.bytes();
  all_.blocks_.Free(at_, held_.bytes());
  all_.blocks_.Coalesce();
  (void)all_.device_.Resize(all_.base_, all_.blocks_.top());  // what cannot be given back now can be later
}

void* PackedCopy::data() const { return all_.base_ + at_; }

bool PackedCopy::Is(const Packing& packing, const opw_tensor& of) const {
  return &packing == &packing_ && of.encoding == encoding_ && std::ranges::equal(shape_.span(), std::span(of.shape, of.rank));
}

PackedCopies::PackedCopies(Device& device, MemoryBudget* budget, int64_t limit) : device_(device), budget_(budget), limit_(limit), blocks_(limit) {
  budget_->reclaim = [this](int64_t bytes) { GiveUp(bytes); };
}

PackedCopies::~PackedCopies() {
  budget_->reclaim = nullptr;
  if (base_) device_.Unreserve(base_);
}

std::shared_ptr<const PackedCopy> PackedCopies::Of(const BufferRef& block, const Packing& packing, const opw_tensor& of) {
  const std::shared_ptr<PackedCopy>& copy = block->origin().packed_;
  return copy && copy->Is(packing, of) ? copy : nullptr;
}

bool PackedCopies::Pays(const BufferRef& block, bool often) {
  bool& met = block->origin().met_packing_;
  return std::exchange(met, true) || often;
}

std::shared_ptr<PackedCopy> PackedCopies::Take(const Packing& packing, const opw_tensor& of) {
  const Packing::Size size = packing.size(of);
  const int64_t bytes = size.pieces * size.bytes;
  // Others are given up for tensors and programs, not for each other: those would be made in turns.
  if (bytes > limit_ - bytes_ || bytes > budget_->limit - budget_->in_use) return nullptr;
  if (!base_) {
    auto base = device_.Reserve(limit_);
    if (!base.ok()) return nullptr;
    base_ = static_cast<uint8_t*>(*base);
  }
  const StatusOr<int64_t> at = blocks_.Allocate(bytes);
  if (!at.ok()) return nullptr;
  if (!device_.Resize(base_, blocks_.top()).ok()) {
    blocks_.Free(*at, bytes);
    return nullptr;
  }
  return std::shared_ptr<PackedCopy>(new PackedCopy(*this, packing, of, *at, bytes));
}

void PackedCopies::Keep(std::shared_ptr<PackedCopy> copy, const BufferRef& block) {
  Buffer& of = block->origin();
  copy->of_ = &of;
  of.packed_ = std::move(copy);
}

void PackedCopies::GiveUp(int64_t bytes) {
  for (size_t i = 0; i < all_.size() && bytes > 0;) {
    PackedCopy& copy = *all_[i];
    if (!copy.of_ || copy.of_->packed_.use_count() > 1) {
      ++i;
      continue;
    }
    bytes -= copy.held_.bytes();
    copy.of_->packed_.reset();
  }
}

}  // namespace opwire

// Copies of blocks in the layouts of kernels.
#include "executor/store/packed.h"

#include <sys/mman.h>

#include <algorithm>

namespace opwire::executor {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int kMetInALoop = 16;                     // a read in a loop counts as that many runs
constexpr int kTimesMore = 16, kMostNeeded = 4096;  // the factor by which a dropped copy needs more
                                                    // runs before it is made again, and the limit

}  // namespace

PackedCopy::PackedCopy(PackedCopies& all, const Packing& packing, const opw_tensor& of,
                       Packing::Size size, int64_t at)
    : all_(all),
      packing_(packing),
      size_(size),
      encoding_(of.encoding),
      shape_({of.shape, of.rank}),
      at_(at),
      held_(all.budget_, size.pieces * size.bytes) {
  all_.all_.push_back(this);
  all_.bytes_ += held_.bytes();
}

PackedCopy::~PackedCopy() {
  std::erase(all_.all_, this);
  all_.bytes_ -= held_.bytes();
  all_.blocks_.Free(at_, held_.bytes());
  all_.blocks_.Coalesce();
  (void)all_.device_.Resize(
      all_.base_,
      all_.blocks_.top());  // memory that cannot be freed now can be freed later
  // Other copies may follow it.
  const int64_t from = (at_ + kPageBytes - 1) / kPageBytes * kPageBytes,
                to = std::min(at_ + Blocks::Rounded(held_.bytes()), all_.blocks_.top()) /
                     kPageBytes * kPageBytes;
  if (from < to) madvise(all_.base_ + from, static_cast<size_t>(to - from), MADV_DONTNEED);
}

void* PackedCopy::data() const { return all_.base_ + at_; }

bool PackedCopy::Is(const Packing& packing, const opw_tensor& of) const {
  return packing.name == packing_.name && of.encoding == encoding_ &&
         std::ranges::equal(shape_.span(), std::span(of.shape, of.rank));
}

PackedCopies::PackedCopies(Device& device, MemoryBudget* budget, int64_t limit)
    : device_(device), budget_(budget), limit_(limit), blocks_(limit) {}

PackedCopies::~PackedCopies() {
  if (base_) device_.Unreserve(base_);
}

std::shared_ptr<PackedCopy> PackedCopies::Of(const BufferRef& block, const Packing& packing,
                                             const opw_tensor& of) {
  const std::shared_ptr<PackedCopy>& copy = block->origin().packed_;
  return copy && copy->done() == copy->pieces() && copy->Is(packing, of) ? copy : nullptr;
}

bool PackedCopies::Pays(const BufferRef& block, bool often) {
  Buffer& of = block->origin();
  const bool pays = of.packing_met_ >= of.packing_needs_ || (often && of.packing_needs_ == 1);
  of.packing_met_ = std::min(of.packing_met_ + (often ? kMetInALoop : 1), kMostNeeded);
  return pays;
}

std::shared_ptr<PackedCopy> PackedCopies::Make(const BufferRef& block, const Packing& packing,
                                               const opw_tensor& of) {
  Buffer& owner = block->origin();
  if (owner.packed_ && owner.packed_->Is(packing, of)) return owner.packed_;
  const Packing::Size size = packing.size(of);
  const int64_t bytes = size.pieces * size.bytes;
  // Others are dropped for tensors and programs, but not for each other: then copies would replace
  // each other in turn.
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
  owner.packed_.reset(new PackedCopy(*this, packing, of, size, *at));
  owner.packed_->of_ = &owner;
  return owner.packed_;
}

bool PackedCopies::Idle(const PackedCopy& copy) {
  return copy.of_->packed_.get() == &copy && copy.of_->packed_.use_count() == 1;
}

int64_t PackedCopies::IdleBytes() const {
  int64_t bytes = 0;
  for (const PackedCopy* copy : all_) bytes += Idle(*copy) ? copy->held_.bytes() : 0;
  return bytes;
}

void PackedCopies::GiveUp(int64_t bytes) {
  for (size_t i = 0; i < all_.size() && bytes > 0;) {
    PackedCopy& copy = *all_[i];
    if (!Idle(copy)) {
      ++i;
      continue;
    }
    Buffer& of = *copy.of_;
    bytes -= copy.held_.bytes();
    of.packing_met_ = 0;
    of.packing_needs_ = std::min(of.packing_needs_ * kTimesMore, kMostNeeded);
    of.packed_.reset();
  }
}

}  // namespace opwire::executor

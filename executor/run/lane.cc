// Reserving and backing scratch memory.
#include "executor/run/lane.h"

#include <sys/mman.h>

namespace opwire {

Lanes::~Lanes() {
  for (const auto& lane : lanes_) munmap(lane->base, static_cast<size_t>(capacity_));
}

StatusOr<Lane*> Lanes::Acquire(int64_t bytes) {
  Lane* lane = nullptr;
  for (const auto& l : lanes_) {
    if (l->busy) continue;
    lane = l.get();
    break;
  }
  if (!lane) {
    if (lanes_.size() == kMaxLanes) return nullptr;
    void* base = mmap(nullptr, static_cast<size_t>(capacity_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return ResourceExhausted("scratch memory: no {} bytes of address space", capacity_);
    lanes_.push_back(std::make_unique<Lane>());
    lane = lanes_.back().get();
    lane->base = static_cast<uint8_t*>(base);
  }
  if (bytes > lane->committed) {
    const int64_t more = bytes - lane->committed;
    if (bytes > capacity_ || !budget_->Fits(more)) {
      return ResourceExhausted("out of memory: the run needs {} bytes of scratch memory, the executor holds {} of {}", bytes, budget_->in_use,
                               budget_->limit);
    }
    lane->committed = bytes;
    budget_->Take(more);
  }
  lane->busy = true;
  return lane;
}

void Lanes::Trim() {
  for (const auto& lane : lanes_) {
    if (lane->busy || lane->committed == 0) continue;
    madvise(lane->base, static_cast<size_t>(lane->committed), MADV_DONTNEED);
    budget_->in_use -= lane->committed;
    lane->committed = 0;
  }
}

}  // namespace opwire

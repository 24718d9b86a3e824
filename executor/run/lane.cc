// Reserving and backing scratch memory.
#include "executor/run/lane.h"

namespace opwire {

Lanes::~Lanes() {
  for (const auto& lane : lanes_) device_.Unreserve(lane->base);
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
    OPWIRE_ASSIGN_OR_RETURN(void* const base, device_.Reserve(capacity_));
    lanes_.push_back(std::make_unique<Lane>());
    lane = lanes_.back().get();
    lane->base = static_cast<uint8_t*>(base);
  }
  if (bytes > lane->committed) {
    const int64_t more = bytes - lane->committed;
    lane->busy = true;  // the budget may have others trimmed
    const bool fits = bytes <= capacity_ && budget_->Fits(more);
    lane->busy = false;
    if (!fits) {
      return ResourceExhausted(
          "out of memory: the run needs {} bytes of scratch memory, the executor holds {} of {}",
          bytes, budget_->in_use, budget_->limit);
    }
    OPWIRE_RETURN_IF_ERROR(device_.Resize(lane->base, bytes));
    lane->committed = bytes;
    budget_->Take(more);
  }
  lane->busy = true;
  return lane;
}

int64_t Lanes::IdleBytes() const {
  int64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->busy ? 0 : lane->committed;
  return bytes;
}

void Lanes::Trim() {
  for (const auto& lane : lanes_) {
    if (lane->busy || lane->committed == 0 || !device_.Resize(lane->base, 0).ok()) continue;
    budget_->in_use -= lane->committed;
    lane->committed = 0;
  }
}

}  // namespace opwire

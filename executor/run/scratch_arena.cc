// Reserving and backing scratch memory.
#include "executor/run/scratch_arena.h"

namespace opwire::executor {

ScratchArenas::~ScratchArenas() {
  for (const auto& arena : arenas_) device_.Unreserve(arena->base);
}

StatusOr<ScratchArena*> ScratchArenas::Acquire(int64_t bytes) {
  ScratchArena* arena = nullptr;
  for (const auto& l : arenas_) {
    if (l->busy) continue;
    arena = l.get();
    break;
  }
  if (!arena) {
    if (arenas_.size() == kMaxArenas) return nullptr;
    OPWIRE_ASSIGN_OR_RETURN(void* const base, device_.Reserve(capacity_));
    arenas_.push_back(std::make_unique<ScratchArena>());
    arena = arenas_.back().get();
    arena->base = static_cast<uint8_t*>(base);
  }
  if (bytes > arena->committed) {
    const int64_t more = bytes - arena->committed;
    arena->busy = true;  // the budget may have others trimmed
    const bool fits = bytes <= capacity_ && budget_->Fits(more);
    arena->busy = false;
    if (!fits) {
      return ResourceExhausted(
          "out of memory: the run needs {} bytes of scratch memory, the executor holds {} of {}",
          bytes, budget_->in_use, budget_->limit);
    }
    OPWIRE_RETURN_IF_ERROR(device_.Resize(arena->base, bytes));
    arena->committed = bytes;
    budget_->Take(more);
  }
  arena->busy = true;
  return arena;
}

int64_t ScratchArenas::IdleBytes() const {
  int64_t bytes = 0;
  for (const auto& arena : arenas_) bytes += arena->busy ? 0 : arena->committed;
  return bytes;
}

void ScratchArenas::Trim() {
  for (const auto& arena : arenas_) {
    if (arena->busy || arena->committed == 0 || !device_.Resize(arena->base, 0).ok()) continue;
    budget_->in_use -= arena->committed;
    arena->committed = 0;
  }
}

}  // namespace opwire::executor

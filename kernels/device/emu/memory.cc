// Pages, their guards and their protection.
#include "kernels/device/emu/memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace opwire::gpu::emu {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kAlignment = 256;
constexpr size_t kGuard = 64 << 10;    // before and after
constexpr size_t kFreedBlocks = 1024;  // whose address space is reserved

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Memory& Memory::Get() {
  static Memory* const memory = new Memory;
  return *memory;
}

int Memory::ProtectionOf(const Pages& pages) const {
  return accesses_ + pages.accesses > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
}

void Memory::ChangeAll(int accesses) {
  std::lock_guard lock(mutex_);
  const bool was_open = accesses_ > 0;
  accesses_ += accesses;
  if ((accesses_ > 0) == was_open) return;
  for (const auto& [at, pages] : pages_) mprotect(at, pages.bytes, ProtectionOf(pages));
}

void Memory::Change(std::string_view range, int accesses) {
  std::lock_guard lock(mutex_);
  auto it = pages_.upper_bound(const_cast<char*>(range.data()));
  if (it != pages_.begin()) --it;
  for (; it != pages_.end() && it->first < range.data() + range.size(); ++it) {
    auto& [at, pages] = *it;
    if (at + pages.bytes <= range.data()) continue;
    const int before = ProtectionOf(pages);
    pages.accesses = std::max(pages.accesses + accesses,
                              0);  // pages that were added during the access have none
    if (ProtectionOf(pages) != before) mprotect(at, pages.bytes, ProtectionOf(pages));
  }
}

void* Memory::Allocate(size_t bytes) {
  const size_t aligned = RoundUp(bytes, kAlignment), pages = RoundUp(aligned, kPageBytes);
  void* const mapped = Reserve(pages + 2 * kGuard);
  if (!mapped) return nullptr;
  char* const data = static_cast<char*>(mapped) + kGuard;
  if (!Commit(data, pages)) {
    munmap(mapped, pages + 2 * kGuard);
    return nullptr;
  }
  char* const out = data + pages - aligned;
  std::lock_guard lock(mutex_);
  blocks_.emplace(out, Block{static_cast<char*>(mapped), pages + 2 * kGuard});
  return out;
}

void Memory::Free(void* memory) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<char*>(memory));
  if (it == blocks_.end()) return;
  const Block block = it->second;
  pages_.erase(block.mapped + kGuard);
  blocks_.erase(it);
  mmap(block.mapped, block.mapped_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.push_back(block);
  if (freed_.size() <= kFreedBlocks) return;
  munmap(freed_.front().mapped, freed_.front().mapped_bytes);
  freed_.pop_front();
}

void* Memory::Reserve(size_t bytes) {
  void* const base =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

void Memory::Unreserve(void* base, size_t bytes) { munmap(base, bytes); }

bool Memory::Commit(void* at, size_t bytes) {
  std::lock_guard lock(mutex_);
  const Pages pages{bytes};
  if (mprotect(at, bytes, ProtectionOf(pages)) != 0) return false;
  pages_[static_cast<char*>(at)] = pages;
  return true;
}

void Memory::Decommit(void* at) {
  std::lock_guard lock(mutex_);
  const auto it = pages_.find(static_cast<char*>(at));
  if (it == pages_.end()) return;
  mprotect(at, it->second.bytes, PROT_NONE);
  madvise(at, it->second.bytes, MADV_DONTNEED);
  pages_.erase(it);
}

int64_t Memory::in_use() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [at, pages] : pages_) bytes += static_cast<int64_t>(pages.bytes);
  return bytes;
}

}  // namespace opwire::gpu::emu

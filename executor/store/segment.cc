// The allocator of a session's segment: size classes first, a coalescing map of gaps behind them.
#include "executor/store/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

namespace opwire {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

StatusOr<std::unique_ptr<Segment>> Segment::Create(int64_t capacity) {
  auto segment = std::unique_ptr<Segment>(new Segment);
  capacity = (capacity + kPage - 1) / kPage * kPage;
  segment->capacity_ = capacity;
  segment->fd_ = memfd_create("opwire", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->fd_ < 0) return Unavailable("segment: memfd_create: {}", std::strerror(errno));
  if (ftruncate(segment->fd_, capacity) != 0 || fcntl(segment->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Unavailable("segment of {} bytes: {}", capacity, std::strerror(errno));
  }
  void* base = mmap(nullptr, static_cast<size_t>(capacity), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, segment->fd_, 0);
  if (base == MAP_FAILED) return Unavailable("segment of {} bytes: {}", capacity, std::strerror(errno));
  segment->base_ = static_cast<uint8_t*>(base);
  return segment;
}

Segment::~Segment() {
  if (base_) munmap(base_, static_cast<size_t>(capacity_));
  if (fd_ >= 0) close(fd_);
}

// Multiples of 64 up to a page; beyond it whole pages in steps of an eighth of a power of two, so at most an eighth is lost.
int64_t Segment::Rounded(int64_t bytes) {
  if (bytes <= 64) return 64;
  if (bytes <= kPage) return (bytes + 63) / 64 * 64;
  const int exponent = 63 - std::countl_zero(static_cast<uint64_t>(bytes));
  const int64_t step = std::max(kPage, int64_t{1} << (exponent - 3));
  return (bytes + step - 1) / step * step;
}

int Segment::BinOf(int64_t rounded) {
  if (rounded < kPage) return static_cast<int>(rounded / 64);
  const int exponent = 63 - std::countl_zero(static_cast<uint64_t>(rounded));
  const int eighth = static_cast<int>((rounded >> (exponent - 3)) & 7);
  return std::min(kBins - 1, 64 + (exponent - 12) * 8 + eighth);
}

StatusOr<int64_t> Segment::Allocate(int64_t bytes) {
  const int64_t rounded = Rounded(bytes);
  if (rounded > capacity_) return ResourceExhausted("segment: asked for {} bytes of {}", bytes, capacity_);
  // The last bin may hold several sizes of beyond 2^60; none is ever allocated.
  std::vector<int64_t>& bin = bins_[BinOf(rounded)];
  if (!bin.empty()) {
    const int64_t offset = bin.back();
    bin.pop_back();
    return offset;
  }
  if (auto fresh = TakeFresh(rounded); fresh.ok()) return fresh;
  Coalesce();
  return TakeFresh(rounded);
}

StatusOr<int64_t> Segment::TakeFresh(int64_t rounded) {
  for (auto it = gaps_.begin(); it != gaps_.end(); ++it) {
    if (it->second < rounded) continue;
    const int64_t offset = it->first, left = it->second - rounded;
    gaps_.erase(it);
    if (left > 0) gaps_.emplace(offset + rounded, left);
    return offset;
  }
  // Large blocks begin on a page, so that Trim can give all of their pages back.
  const int64_t offset = rounded >= kPage ? (top_ + kPage - 1) / kPage * kPage : top_;
  if (offset + rounded > capacity_) {
    return ResourceExhausted("segment: no free range of {} bytes among {}", rounded, capacity_);
  }
  if (offset > top_) gaps_.emplace(top_, offset - top_);
  top_ = offset + rounded;
  return offset;
}

void Segment::Free(int64_t offset, int64_t bytes) { bins_[BinOf(Rounded(bytes))].push_back(offset); }

void Segment::Coalesce() {
  for (int bin = 0; bin < kBins; ++bin) {
    if (bins_[bin].empty()) continue;
    // The rounded size that falls into this bin.
    const int64_t size = bin < 64 ? bin * 64 : (int64_t{8} + (bin - 64) % 8) << ((bin - 64) / 8 + 12 - 3);
    for (int64_t offset : bins_[bin]) gaps_[offset] = size;
    bins_[bin].clear();
  }
  for (auto it = gaps_.begin(); it != gaps_.end();) {
    const auto next = std::next(it);
    if (next != gaps_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      gaps_.erase(next);
    } else {
      it = next;
    }
  }
  if (!gaps_.empty()) {
    const auto last = std::prev(gaps_.end());
    if (last->first + last->second == top_) {
      const int64_t from = (last->first + kPage - 1) / kPage * kPage;
      if (from < top_) fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, top_ - from);
      top_ = last->first;
      gaps_.erase(last);
    }
  }
}

void Segment::Trim() {
  Coalesce();
  for (const auto& [offset, size] : gaps_) {
    const int64_t from = (offset + kPage - 1) / kPage * kPage, to = (offset + size) / kPage * kPage;
    if (to > from) fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from);
  }
}

}  // namespace opwire

// The allocator of blocks.
#include "executor/store/blocks.h"

#include <algorithm>
#include <bit>

namespace opwire::executor {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

// Multiples of 64 up to a page; beyond it whole pages in steps of an eighth of a power of two, so
// at most an eighth is lost.
int64_t Blocks::Rounded(int64_t bytes) {
  if (bytes <= 64) return 64;
  if (bytes <= kPage) return (bytes + 63) / 64 * 64;
  const int exponent = 63 - std::countl_zero(static_cast<uint64_t>(bytes));
  const int64_t step = std::max(kPage, int64_t{1} << (exponent - 3));
  return (bytes + step - 1) / step * step;
}

int Blocks::BinOf(int64_t rounded) {
  if (rounded < kPage) return static_cast<int>(rounded / 64);
  const int exponent = 63 - std::countl_zero(static_cast<uint64_t>(rounded));
  const int eighth = static_cast<int>((rounded >> (exponent - 3)) & 7);
  return std::min(kBins - 1, 64 + (exponent - 12) * 8 + eighth);
}

StatusOr<int64_t> Blocks::Allocate(int64_t bytes) {
  const int64_t rounded = Rounded(bytes);
  if (rounded > capacity_)
    return ResourceExhausted("memory: asked for {} bytes of {}", bytes, capacity_);
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

StatusOr<int64_t> Blocks::TakeFresh(int64_t rounded) {
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
    return ResourceExhausted("memory: no free range of {} bytes among {}", rounded, capacity_);
  }
  if (offset > top_) gaps_.emplace(top_, offset - top_);
  top_ = offset + rounded;
  return offset;
}

void Blocks::Free(int64_t offset, int64_t bytes) { bins_[BinOf(Rounded(bytes))].push_back(offset); }

void Blocks::Coalesce() {
  for (int bin = 0; bin < kBins; ++bin) {
    if (bins_[bin].empty()) continue;
    // The rounded size that falls into this bin.
    const int64_t size =
        bin < 64 ? bin * 64 : (int64_t{8} + (bin - 64) % 8) << ((bin - 64) / 8 + 12 - 3);
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
      top_ = last->first;
      gaps_.erase(last);
    }
  }
}

}  // namespace opwire::executor

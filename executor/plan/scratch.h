// Offsets in scratch memory for values with lifetimes: best fit over free ranges, in order of definition.
#ifndef OPWIRE_EXECUTOR_PLAN_SCRATCH_H_
#define OPWIRE_EXECUTOR_PLAN_SCRATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "ir/base/checked.h"

namespace opwire {

class ScratchPlanner {
 public:
  // The offset of `bytes` bytes, 64-byte aligned; nothing when sizes overflow.
  std::optional<int64_t> Take(int64_t bytes) {
    const auto padded = CheckedAdd(bytes, kAlign - 1);
    if (!padded) return std::nullopt;
    const int64_t size = std::max(*padded / kAlign * kAlign, kAlign);
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit != by_size_.end()) {
      const auto [gap, offset] = *fit;
      Remove(offset, gap);
      if (gap > size) Insert(offset + size, gap - size);
      return offset;
    }
    // Grow, out of a free range that ends at the top if there is one.
    int64_t offset = top_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        Remove(last->first, last->second);
      }
    }
    const auto end = CheckedAdd(offset, size);
    if (!end) return std::nullopt;
    top_ = *end;
    peak_ = std::max(peak_, top_);
    return offset;
  }

  // REQUIRES: Take gave this offset for these bytes.
  void Give(int64_t offset, int64_t bytes) {
    int64_t size = std::max((bytes + kAlign - 1) / kAlign * kAlign, kAlign);
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + size == next->first) {
      size += next->second;
      Remove(next->first, next->second);
    }
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto [before_offset, before_size] = *std::prev(after);
      if (before_offset + before_size == offset) {
        Remove(before_offset, before_size);
        offset = before_offset;
        size += before_size;
      }
    }
    Insert(offset, size);
  }

  int64_t peak() const { return peak_; }

 private:
  static constexpr int64_t kAlign = 64;
  void Insert(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void Remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t top_ = 0;
  int64_t peak_ = 0;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_SCRATCH_H_

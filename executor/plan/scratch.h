// Places in scratch memory for values with lifetimes.
//
//   ScratchPlanner planner;
//   const auto a = planner.Take(4096), b = planner.Take(64);   // both are needed at the same time
//   planner.Give(*a);
//   planner.Place();
//   planner.OffsetOf(*b); planner.peak();
#ifndef OPWIRE_EXECUTOR_PLAN_SCRATCH_H_
#define OPWIRE_EXECUTOR_PLAN_SCRATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace opwire {

class ScratchPlanner {
 public:
  // The number of a place for `bytes` bytes, from 0 on; nothing when sizes overflow.
  std::optional<int64_t> Take(int64_t bytes);
  // It is needed no longer. REQUIRES: Take gave it, and nobody gave it back.
  void Give(int64_t place);
  // Behind the last Take: decides where places lie. They begin as best fit over free ranges gave
  // them, in order. Where that takes notably more than the bound, and there are few enough that it
  // takes some milliseconds at the most, the largest, or those that last, are placed first, each as
  // low as those before it allow, if that is less.
  void Place();

  // 64-byte aligned; places whose times overlap lie apart. REQUIRES: Place was called.
  int64_t OffsetOf(int64_t place) const { return places_[static_cast<size_t>(place)].offset; }
  int64_t peak() const { return peak_; }
  // The most bytes that were needed at one time: no order of places takes less.
  int64_t bound() const { return bound_; }

 private:
  struct Range {
    int64_t offset, size;
    uint32_t begin, end;  // of Takes and Gives, counted
    bool Overlaps(const Range& other) const { return begin <= other.end && other.begin <= end; }
  };
  static constexpr uint32_t kForever = UINT32_MAX;
  static constexpr uint32_t kNone = UINT32_MAX;

  std::optional<int64_t> Fit(int64_t size);
  // Places all in this order, each as low as those before it allow, where they all end below the
  // peak, which is lower then; whether they do. `pile`: the place that ends highest, or the first
  // that does not end below the peak, then what it rests on, and so on down to offset 0.
  bool Pack(std::span<const uint32_t> order, std::vector<uint32_t>& pile);
  void Insert(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void Remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::vector<Range> places_;
  std::map<int64_t, int64_t> by_offset_;  // free ranges
  std::set<std::pair<int64_t, int64_t>> by_size_;
  uint32_t now_ = 0;
  int64_t top_ = 0, peak_ = 0, live_ = 0, bound_ = 0;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_SCRATCH_H_

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

namespace opwire::executor {

class ScratchPlanner {
 public:
  // Returns the number of a place for `bytes` bytes, counted from 0; nothing if sizes overflow.
  std::optional<int64_t> Take(int64_t bytes);
  // Ends the place's lifetime. REQUIRES: Take returned it, and Give was not called with it before.
  void Give(int64_t place);
  // Decides the offsets of places, after the last Take. First it uses the offsets that best fit
  // over free ranges gave, in order. That may take notably more than the bound. If the places are
  // few enough for at most some milliseconds, it tries other orders. These place the largest, or
  // the longest-lived, first, each as low as the earlier ones allow. It keeps the result with the
  // lowest peak.
  void Place();

  // 64-byte aligned. Places whose lifetimes overlap do not share memory. REQUIRES: Place was
  // called.
  int64_t OffsetOf(int64_t place) const { return places_[static_cast<size_t>(place)].offset; }
  int64_t peak() const { return peak_; }
  // The most bytes that are live at one time: no order of places takes less.
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
  // Places all in this order, each as low as the earlier ones allow. Returns whether all end below
  // the peak, and lowers the peak if so. `pile`: the place that ends highest, or the first that
  // does not end below the peak. Then the place on which it rests, and so on down to offset 0.
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

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_SCRATCH_H_

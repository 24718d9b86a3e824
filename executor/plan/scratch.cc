// Best fit in the order of Take and Give. Once all places are known: first fit in orders in which
// large or long-lived places come first. Places that make the highest pile higher than necessary
// are then placed earlier.
#include "executor/plan/scratch.h"

#include <algorithm>
#include <numeric>

#include "ir/base/checked.h"

namespace opwire::executor {
namespace {

constexpr int64_t kAlign = 64;
constexpr size_t kMostPlaces =
    2048;  // the limit for other orders, whose time grows with the square
constexpr size_t kMostSteps =
    size_t{1} << 23;  // of all tries, each of which takes at most the square of the places
constexpr size_t kMostTries = 512;
constexpr int64_t kWorthBytes = int64_t{1} << 20;  // smaller savings are not worth it
constexpr int64_t kWorthPart = 50;  // nor are savings of less than this part of the bound

}  // namespace

std::optional<int64_t> ScratchPlanner::Fit(int64_t size) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit != by_size_.end()) {
    const auto [gap, offset] = *fit;
    Remove(offset, gap);
    if (gap > size) Insert(offset + size, gap - size);
    return offset;
  }
  // Grow from a free range that ends at the top, if there is one.
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

std::optional<int64_t> ScratchPlanner::Take(int64_t bytes) {
  const auto padded = CheckedAdd(bytes, kAlign - 1);
  if (!padded) return std::nullopt;
  const int64_t size = std::max(*padded / kAlign * kAlign, kAlign);
  const auto offset = Fit(size);
  if (!offset) return std::nullopt;
  bound_ = std::max(bound_, live_ += size);
  places_.push_back({*offset, size, now_++, kForever});
  return static_cast<int64_t>(places_.size() - 1);
}

void ScratchPlanner::Give(int64_t place) {
  Range& range = places_[static_cast<size_t>(place)];
  range.end = now_++;
  live_ -= range.size;
  int64_t offset = range.offset, size = range.size;
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

bool ScratchPlanner::Pack(std::span<const uint32_t> order, std::vector<uint32_t>& pile) {
  std::vector<int64_t> offsets(places_.size());
  std::vector<uint32_t> below(places_.size(), kNone);  // what each rests on
  std::vector<uint32_t> placed;                        // by offset
  placed.reserve(order.size());
  int64_t peak = 0;
  uint32_t highest = kNone;
  for (const uint32_t place : order) {
    const Range& range = places_[place];
    int64_t offset = 0;
    for (const uint32_t other : placed) {
      const Range& o = places_[other];
      if (!o.Overlaps(range)) continue;
      if (offsets[other] - offset >= range.size) break;
      if (offsets[other] + o.size <= offset) continue;
      offset = offsets[other] + o.size;
      below[place] = other;
    }
    offsets[place] = offset;
    if (offset + range.size > peak) {
      peak = offset + range.size;
      highest = place;
    }
    if (peak >= peak_) break;
    placed.insert(
        std::ranges::upper_bound(placed, offset, {}, [&](uint32_t p) { return offsets[p]; }),
        place);
  }
  pile.clear();
  for (uint32_t place = highest; place != kNone; place = below[place]) pile.push_back(place);
  if (peak >= peak_) return false;
  for (size_t i = 0; i < places_.size(); ++i) places_[i].offset = offsets[i];
  peak_ = peak;
  return true;
}

void ScratchPlanner::Place() {
  const auto is_worth_it = [&] {
    return peak_ - bound_ >= kWorthBytes && peak_ - bound_ >= bound_ / kWorthPart;
  };
  const size_t count = places_.size();
  if (!is_worth_it() || count > kMostPlaces) return;
  const auto lasts = [&](uint32_t i) {
    return static_cast<double>(std::min(places_[i].end, now_) - places_[i].begin);
  };
  const auto by = [&](const auto& key) {
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater(), key);
    return order;
  };
  std::vector<uint32_t> orders[] = {
      by([&](uint32_t i) { return static_cast<double>(places_[i].size); }),
      by([&](uint32_t i) { return static_cast<double>(places_[i].size) * lasts(i); }), by(lasts)};
  size_t tries = std::min(kMostTries, kMostSteps / (count * count) + 1);
  std::vector<uint32_t> piles[std::size(orders)];
  for (size_t o = 0; o < std::size(orders); ++o) Pack(orders[o], piles[o]);
  // Values that are all live at once need no more than the bound. So in a pile above the bound,
  // some lifetimes do not overlap. Of the two largest such places, the upper one is placed before
  // the lower one.
  for (size_t o = 0; tries > 0 && is_worth_it(); o = (o + 1) % std::size(orders), --tries) {
    int64_t most = 0;
    uint32_t upper = 0, lower = 0;
    for (size_t u = 0; u < piles[o].size(); ++u) {
      for (size_t l = u + 1; l < piles[o].size(); ++l) {
        const Range &above = places_[piles[o][u]], &beneath = places_[piles[o][l]];
        const int64_t size = std::min(above.size, beneath.size);
        if (size <= most || above.Overlaps(beneath)) continue;
        most = size;
        upper = piles[o][u];
        lower = piles[o][l];
      }
    }
    const auto to = std::ranges::find(orders[o], lower), from = std::ranges::find(orders[o], upper);
    std::rotate(to, from, from + 1);
    Pack(orders[o], piles[o]);
  }
}

}  // namespace opwire::executor

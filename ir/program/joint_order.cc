// Assigns levels, forms groups within each, and orders the groups.
#include "ir/program/joint_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

namespace opwire {

std::vector<std::vector<uint32_t>> JointOrder(std::span<const std::string> keys,
                                              std::vector<std::pair<uint32_t, uint32_t>> edges,
                                              size_t most) {
  const auto count = static_cast<uint32_t>(keys.size());
  std::ranges::sort(edges);
  const auto each_after = [&](uint32_t n, const auto& visit) {
    for (auto it = std::ranges::lower_bound(edges, std::pair(n, 0u));
         it != edges.end() && it->first == n; ++it)
      visit(it->second);
  };
  // No path leads between two items with a key on one level: each item with a key on a path adds a
  // level. So no path leaves a group and enters it again, not even through other groups.
  std::vector<uint32_t> level(count);
  std::vector<std::vector<uint32_t>> groups;
  std::vector<uint32_t> group_of(count);
  std::unordered_map<std::string, uint32_t> known;
  for (uint32_t n = 0; n < count; ++n) {
    each_after(n,
               [&](uint32_t to) { level[to] = std::max(level[to], level[n] + !keys[n].empty()); });
    auto group = static_cast<uint32_t>(groups.size());
    if (!keys[n].empty()) {
      uint32_t& last =
          known.try_emplace(keys[n] + '\0' + std::to_string(level[n]), group).first->second;
      if (last != group && groups[last].size() >= most) last = group;
      group = last;
    }
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(n);
    group_of[n] = group;
  }
  if (groups.size() == count) return groups;

  std::vector<uint32_t> waits(groups.size());
  for (const auto& [from, to] : edges) ++waits[group_of[to]];
  using Ready = std::pair<uint32_t, uint32_t>;  // its original position, and the group
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  const auto is_ready = [&](uint32_t group) { ready.push({groups[group].back(), group}); };
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (waits[g] == 0) is_ready(g);
  }
  std::vector<std::vector<uint32_t>> out;
  while (!ready.empty()) {
    const uint32_t g = ready.top().second;
    ready.pop();
    for (const uint32_t n : groups[g]) {
      each_after(n, [&](uint32_t to) {
        if (--waits[group_of[to]] == 0) is_ready(group_of[to]);
      });
    }
    out.push_back(std::move(groups[g]));
  }
  return out;
}

}  // namespace opwire

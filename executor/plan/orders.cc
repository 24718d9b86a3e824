// A union-find whose edges are orders of axes.
#include "executor/plan/orders.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace opwire::executor {
namespace {

// Which axes of `to` those are that `order` makes axes of what `to` is in.
AxisOrder Composed(const AxisOrder& order, const AxisOrder& to) {
  if (order.empty()) return to;
  if (to.empty()) return order;
  AxisOrder out;
  for (const uint8_t a : order) out.push_back(to[a]);
  return out;
}
AxisOrder Inverse(const AxisOrder& order) {
  AxisOrder out(order.size());
  for (size_t a = 0; a < order.size(); ++a) out[order[a]] = static_cast<uint8_t>(a);
  return out;
}
bool AreEqual(const AxisOrder& a, const AxisOrder& b) {
  const auto straight = [](const AxisOrder& order) { return std::ranges::is_sorted(order); };
  return a == b || (straight(a) && straight(b));
}
uint32_t Moved(uint32_t axes, const AxisOrder& order) {
  if (order.empty()) return axes;
  uint32_t out = 0;
  for (size_t a = 0; a < order.size(); ++a) out |= (axes >> a & 1) << order[a];
  return out;
}

}  // namespace

AxisOrders::AxisOrders(std::span<const size_t> ranks)
    : ranks_(ranks.begin(), ranks.end()),
      up_(ranks.size()),
      order_(ranks.size()),
      reductions_(ranks.size()) {
  std::iota(up_.begin(), up_.end(), 0u);
  for (const size_t rank : ranks) last_.push_back(rank > 0 ? 1u << (rank - 1) : 0);
}

AxisOrders::Found AxisOrders::Find(uint32_t n) {
  std::vector<uint32_t> path;
  for (; up_[n] != n; n = up_[n]) path.push_back(n);
  AxisOrder order;
  for (size_t i = path.size(); i-- > 0;) {
    order = Composed(order_[path[i]], order);
    order_[path[i]] = order;
    up_[path[i]] = n;
  }
  return {n, std::move(order)};
}

void AxisOrders::Attach(uint32_t a, uint32_t b, const AxisOrder& order) {
  const uint32_t from = Find(a).root, to = Find(b).root;
  if (from == to) return;
  up_[from] = to;
  order_[from] = order;
  last_[to] |= Moved(last_[from], order);
  reductions_[to] = reductions_[to] || reductions_[from];
}

void AxisOrders::SetPermutes(uint32_t n, const AxisOrder& order) {
  const auto last_of_operand = std::ranges::find(order, order.size() - 1);
  last_[n] |= 1u << (last_of_operand - order.begin());
}

AxisOrders::Outcome AxisOrders::Join(uint32_t from, uint32_t to, const AxisOrder& order) {
  const Found a = Find(from), b = Find(to);
  if (reductions_[a.root] || reductions_[b.root]) return kReductions;
  // The axes of `to` in a's.
  const AxisOrder in_a = Composed(order, a.order);
  if (a.root == b.root) return AreEqual(in_a, b.order) ? kJoined : kOtherwise;
  const AxisOrder between = b.order.empty() ? in_a : Composed(Inverse(b.order), in_a);
  if (std::popcount(last_[a.root] | Moved(last_[b.root], between)) > 2) return kThirdAxis;
  Attach(to, from, between);
  return kJoined;
}

AxisOrder AxisOrders::Of(uint32_t n) {
  AxisOrder order = Find(n).order;
  if (order.empty()) {
    order.resize(ranks_[n]);
    std::iota(order.begin(), order.end(), uint8_t{0});
  }
  return order;
}

}  // namespace opwire::executor

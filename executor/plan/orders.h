// In which order of axes the nodes of an elementwise group work, some of which permutations part
// from each other.
//
//   AxisOrders orders(ranks);                                     // by node, of its result
//   orders.Unite(exp, add);                                       // one reads the other as it is
//   // axis a of what `turned` gives is axis {1, 0}[a] of what `add` gives
//   orders.Join(add, turned, {1, 0}) == AxisOrders::kJoined;
//   orders.Of(turned);  // {1, 0}: the axes of the group's shape that its axes are
//
// A kernel reads and writes along two axes at the most (kernels/fused/driver.inc.h, gpu_tiles.h),
// so no third one is any tensor's last in a group.
#ifndef OPWIRE_EXECUTOR_PLAN_ORDERS_H_
#define OPWIRE_EXECUTOR_PLAN_ORDERS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace opwire {

using AxisOrder = std::vector<uint8_t>;  // by axis of a tensor, an axis of another; empty: the same

class AxisOrders {
 public:
  enum Outcome : uint8_t {
    kJoined,
    kOtherwise,  // they are of one group, in which the one lies otherwise
    kFolds,      // one is joined with a fold
    kThirdAxis,  // a third axis would be some tensor's last
  };

  explicit AxisOrders(std::span<const size_t> ranks);

  // Nodes without a permutation between them, of one shape where none folds. REQUIRES: all of these
  // come before the first Join.
  void Unite(uint32_t a, uint32_t b) { Attach(a, b, {}); }
  void SetFolds(uint32_t n) { folds_[Find(n).root] = true; }

  // Joins `to`, which reads `from`, and all that they are joined with. `order`: where `to` is a
  // permutation, the axes of its operand that its result's are.
  Outcome Join(uint32_t from, uint32_t to, const AxisOrder& order);
  // A permutation by itself, whose operand comes from elsewhere.
  void SetPermutes(uint32_t n, const AxisOrder& order);

  bool AreJoined(uint32_t a, uint32_t b) { return Find(a).root == Find(b).root; }
  // Of the result's axes, in those of the group.
  AxisOrder Of(uint32_t n);

 private:
  struct Found {
    uint32_t root;
    AxisOrder order;
  };
  Found Find(uint32_t n);
  // a's root below b's, `order` being that of its axes in b's.
  void Attach(uint32_t a, uint32_t b, const AxisOrder& order);

  std::vector<size_t> ranks_;
  std::vector<uint32_t> up_;      // a union-find's
  std::vector<AxisOrder> order_;  // of the axes in up_'s
  std::vector<uint32_t> last_;    // by root: a bit for each axis that is some tensor's last
  std::vector<bool> folds_;       // by root
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_ORDERS_H_

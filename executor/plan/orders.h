// The order of axes in which each node of an elementwise group works, if permutations are among the
// nodes.
//
//   AxisOrders orders(ranks);                                     // by node, of its result
//   orders.Unite(exp, add);                                       // one reads the other as it is
//   // axis a of the result of `turned` is axis {1, 0}[a] of the result of `add`
//   orders.Join(add, turned, {1, 0}) == AxisOrders::kJoined;
//   orders.Of(turned);  // {1, 0}: the axes of the group's shape that its axes are
//
// A kernel reads and writes along at most two axes (kernels/fused/driver.inc.h, gpu_tiles.h). So a
// tensor's last axis is one of two axes in a group.
#ifndef OPWIRE_EXECUTOR_PLAN_ORDERS_H_
#define OPWIRE_EXECUTOR_PLAN_ORDERS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace opwire::executor {

using AxisOrder = std::vector<uint8_t>;  // by axis of a tensor, an axis of another; empty: the same

class AxisOrders {
 public:
  enum Outcome : uint8_t {
    kJoined,
    kOtherwise,   // they are in one group already, with another order of axes
    kReductions,  // one of them is joined with a reduction
    kThirdAxis,   // a third axis would be some tensor's last
  };

  explicit AxisOrders(std::span<const size_t> ranks);

  // Joins nodes of one shape without a permutation and without a reduction between them. REQUIRES:
  // all calls come before the first Join.
  void Unite(uint32_t a, uint32_t b) { Attach(a, b, {}); }
  void SetReduces(uint32_t n) { reductions_[Find(n).root] = true; }

  // Joins `to`, which reads `from`, and all nodes that they are joined with. `order`: if `to` is a
  // permutation, by axis of its result the axis of its operand.
  Outcome Join(uint32_t from, uint32_t to, const AxisOrder& order);
  // Notes a permutation whose operand is not part of the group.
  void SetPermutes(uint32_t n, const AxisOrder& order);

  bool AreJoined(uint32_t a, uint32_t b) { return Find(a).root == Find(b).root; }
  // By axis of the result, the axis of the group.
  AxisOrder Of(uint32_t n);

 private:
  struct Found {
    uint32_t root;
    AxisOrder order;
  };
  Found Find(uint32_t n);
  // Attaches a's root below b's. `order`: by axis of a, the axis of b.
  void Attach(uint32_t a, uint32_t b, const AxisOrder& order);

  std::vector<size_t> ranks_;
  std::vector<uint32_t> up_;      // of a union-find
  std::vector<AxisOrder> order_;  // the axes in those of up_
  std::vector<uint32_t> last_;    // by root: a bit for each axis that is some tensor's last
  std::vector<bool> reductions_;  // by root
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_ORDERS_H_

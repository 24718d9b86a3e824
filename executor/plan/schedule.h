// In which order the nodes of a function run, and which of them run as one kernel.
//
// Groups are elementwise nodes of one shape, folds along its last axis, and elementwise nodes of
// what these give; or elementwise nodes and folds along the same axes in front of the last, whose
// results are for later stages. Permutations between elementwise nodes, before and behind them are
// part of groups without folds, which then read and write tensors in other orders of axes
// (orders.h). A stage is what lies between two values that must be in memory: each edge over which
// nodes cannot be joined (another shape, an op of another kind) leads to a later stage, so nodes of
// one stage that are joined directly or through each other are a group that no path leaves and
// enters again. That takes time linear in the function's size.
#ifndef OPWIRE_EXECUTOR_PLAN_SCHEDULE_H_
#define OPWIRE_EXECUTOR_PLAN_SCHEDULE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/plan/orders.h"
#include "executor/plan/views.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"
#include "kernels/abi.h"
#include "kernels/fused/fuser.h"

namespace opwire {

// The nodes of a group, 64 at the most; or several equal groups, the members, that run at one time
// (horizontal.h): inputs, outputs and arguments are then the members' one after another.
struct FusedGroup {
  std::vector<uint32_t>
      nodes;  // at least two, in the function's order; of members one after another
  uint32_t members = 1, first_nodes = 0;  // of several: how many of the nodes are the first's
  std::vector<ValueId> inputs,
      outputs;  // the kernel's operands and results; numbers that it takes as arguments are none
  // Of the same: a result may take the place of an operand of its kind only. Empty: no node folds.
  std::vector<fused::RowProgram::Place> input_places, output_places;
  // Of the same, where permutations are among the nodes: which of the group's axes theirs are.
  // Empty: all lie as its shape does.
  std::vector<AxisOrder> input_orders, output_orders;
  std::vector<opw_attr> arguments;
  std::shared_ptr<const fused::ScalarProgram>
      program;  // what one member does; null where nodes fold or tensors lie in another order
  std::shared_ptr<const opw_kernel> kernel;
  // Of products (products.h): by result, the operand whose place it may take, -1: none's. Empty:
  // any that its place allows.
  std::vector<int32_t> takes_place_of;
  // Whether the kernel writes a few elements of the operand's storage, which is the result's, and
  // reads none.
  bool ChangesOperand(size_t i) const {
    return std::ranges::find(takes_place_of, static_cast<int32_t>(i)) != takes_place_of.end();
  }
  bool ChangesResult(size_t r) const { return r < takes_place_of.size() && takes_place_of[r] >= 0; }
  std::optional<uint32_t> checked;  // the node whose operands' values the kernel checks
  std::vector<std::string> ends;  // for people: why neighbours are no part of it, "%5 goes to sum,
                                  // which is not elementwise"
};

struct Unit {
  uint32_t node;       // of a group: its last
  int32_t group = -1;  // its number; -1: the node alone
};

// A node that groups could take in, and that is of none.
struct LoneNode {
  uint32_t node;
  std::vector<std::string> ends;  // why, as of groups
};

struct Schedule {
  std::vector<FusedGroup> groups;
  std::vector<Unit>
      units;  // in the order in which they run; constants that groups have taken in are none
  std::vector<uint32_t>
      unit_of;  // by node: where it is among the units; kNowhere for such a constant
  static constexpr uint32_t kNowhere = UINT32_MAX;
  std::vector<LoneNode>
      lone;  // by node, where there is more to say than that they read parameters and make results

  // Why a node is of no group; empty: nothing is to be said.
  std::span<const std::string> WhyAlone(uint32_t node) const;
};

// Writes a schedule anew, unit by unit.
class ScheduleWriter {
 public:
  // From here on its groups are taken out of `from` as they are added.
  explicit ScheduleWriter(Schedule& from) : from_(from) {
    out_.unit_of.assign(from.unit_of.size(), Schedule::kNowhere), out_.lone = std::move(from.lone);
  }
  // A group that is new.
  void Add(FusedGroup group);
  // One of the units that there were.
  void Add(Unit unit);
  Schedule Take() { return std::move(out_); }

 private:
  void Append(const Unit& unit, std::span<const uint32_t> nodes);

  Schedule& from_;
  Schedule out_;
};

// What of a function a schedule is made of.
struct Scheduled {
  const Function& f;
  const ValueTypes& values;
  const FunctionTyping& typing;
  const Views& views;
  std::span<const int32_t> inout_of_result;  // FunctionPlan::inout_of_result
  const DimTable& dims;
};
// `fusable`: by node, whether a kernel of our own may take the place of what would run it. Without
// a fuser every node is a unit, in the function's order.
Schedule MakeSchedule(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser* fuser);

// Whether a row's nodes work element by element, and can be part of groups.
bool IsElementwise(const OpRow& row);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_SCHEDULE_H_

// The order in which the nodes of a function run, and the groups that run as one kernel.
//
// A group has elementwise nodes of one shape, reductions along its last axis, and elementwise nodes
// of their results. Or it has elementwise nodes and reductions along the same axes before the last,
// whose results are for later stages. Permutations before, between and after elementwise nodes are
// part of groups without reductions. Such groups read and write tensors in other orders of axes
// (orders.h).
//
// A stage is the part of the function between two values that must be in memory. An edge whose
// nodes cannot be joined (another shape, an op of another kind) leads to a later stage. So nodes of
// one stage that are joined, directly or through each other, are a group that no path leaves and
// enters again. The time is linear in the function's size.
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

namespace opwire::executor {

// The nodes of a group, at most 64; or several equal groups, the members, that run at one time
// (horizontal.h). With members, inputs, outputs and arguments are the members' one after another.
struct FusedGroup {
  std::vector<uint32_t>
      nodes;  // at least two, in the function's order; with members, one member after another
  uint32_t members = 1, first_nodes = 0;  // with members: the number of the first member's nodes
  std::vector<ValueId> inputs,
      outputs;  // the kernel's operands and results, without the numbers that are arguments
  // By input and output: a result may take the place of an operand of its kind only. Empty: no node
  // is a reduction.
  std::vector<fused::RowProgram::Place> input_places, output_places;
  // By input and output, if permutations are among the nodes: by axis of the tensor, the axis of
  // the group's shape. Empty: all have the order of its shape.
  std::vector<AxisOrder> input_orders, output_orders;
  std::vector<opw_attr> arguments;
  std::shared_ptr<const fused::ScalarProgram>
      program;  // of one member; null if there are reductions or other orders of axes
  std::shared_ptr<const opw_kernel> kernel;
  // For matmuls (products.h): by result, the operand whose place it may take; -1: none. Empty: any
  // that its place allows.
  std::vector<int32_t> takes_place_of;
  // Whether the kernel writes a few elements of the operand's storage, which is the result's, and
  // reads no elements of it.
  bool ChangesOperand(size_t i) const {
    return std::ranges::find(takes_place_of, static_cast<int32_t>(i)) != takes_place_of.end();
  }
  bool ChangesResult(size_t r) const { return r < takes_place_of.size() && takes_place_of[r] >= 0; }
  std::optional<uint32_t> checked;  // the node whose operands' values the kernel checks
  std::vector<std::string> ends;  // for people: why neighbours are not part of the group, "%5 goes
                                  // to sum, which is not elementwise"
};

struct Unit {
  uint32_t node;       // of a group: its last
  int32_t group = -1;  // its number; -1: the node alone
};

// A node without a group that could be part of one.
struct LoneNode {
  uint32_t node;
  std::vector<std::string> ends;  // the reasons, as in groups
};

struct Schedule {
  std::vector<FusedGroup> groups;
  std::vector<Unit>
      units;  // in the order in which they run, without constants that groups have taken in
  std::vector<uint32_t> unit_of;  // by node: the index of its unit; kNowhere for such a constant
  static constexpr uint32_t kNowhere = UINT32_MAX;
  std::vector<LoneNode>
      lone;  // by node, unless the only reasons are that it reads parameters and makes results

  // Why a node is in no group; empty: there is no reason to report.
  std::span<const std::string> WhyAlone(uint32_t node) const;
};

// Rewrites a schedule, unit by unit.
class ScheduleWriter {
 public:
  // Moves groups out of `from` when they are added.
  explicit ScheduleWriter(Schedule& from) : from_(from) {
    out_.unit_of.assign(from.unit_of.size(), Schedule::kNowhere), out_.lone = std::move(from.lone);
  }
  // Adds a new group.
  void Add(FusedGroup group);
  // Adds a unit of `from`.
  void Add(Unit unit);
  Schedule Take() { return std::move(out_); }

 private:
  void Append(const Unit& unit, std::span<const uint32_t> nodes);

  Schedule& from_;
  Schedule out_;
};

// The facts about a function from which a schedule is made.
struct Scheduled {
  const Function& f;
  const ValueTypes& values;
  const FunctionTyping& typing;
  const Views& views;
  std::span<const int32_t> inout_of_result;  // FunctionPlan::inout_of_result
  const DimTable& dims;
};
// `fusable`: by node, whether one of our kernels may take the place of its variant. Without a fuser
// every node is a unit, in the function's order.
Schedule MakeSchedule(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser* fuser);

// Whether nodes of an op definition work element by element, and can be part of groups.
bool IsElementwise(const OpDef& row);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_SCHEDULE_H_

// Joins small groups with the same operations on different tensors into one step, a joint group.
// Examples are an optimiser that is written as plain ops for each of many weights, and the casts of
// all weights.
//
// Joined units have the same scalar program. They are groups without reductions, or single
// elementwise nodes. No path leads from one to another. A node that reads an old value of an
// `inout` parameter has an edge to the node that replaces it. Their shapes may differ. Units that
// are known to be large gain nothing and do not join.
//
// A joint group does not increase the memory of a run. Units move only if no scratch memory is
// taken or kept for longer than before:
// - Values that a member makes become results of the function. These have memory of their own, or
//   an inout parameter's, for the whole run. No other unit reads them, so that none waits for the
//   joint step.
// - Members move only within a range of units that qualify. These are members, elementwise units
//   that make such results, views, and units that make one number. The operands of the range exist
//   at its beginning, so that at most the memory of that moment is in use (except for the numbers,
//   of 64 bytes each).
#ifndef OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_
#define OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_

#include <optional>
#include <vector>

#include "executor/plan/schedule.h"
#include "kernels/fused/fuser.h"

namespace opwire::executor {

// The most members of a joint group, so that a run can still yield to others between steps.
inline constexpr size_t kMaxMembers = 256;
// The most elements of a member, if they are known before sizes are bound.
inline constexpr int64_t kMaxMemberElements = int64_t{1} << 20;

// Describes a single elementwise node as a group without a kernel. Numbers are read from memory as
// other operands are. Returns nothing if the node fits no kernel. REQUIRES: it has a body.
std::optional<FusedGroup> GroupOfOne(const Scheduled& what, uint32_t n);

// Replaces units that can join by joint groups. `fusable`: MakeSchedule's.
void JoinEqualUnits(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                    Schedule& schedule);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_

// Small groups that do the same to tensors of their own, at one time: an optimiser that is written
// as plain ops for each of many weights, or the casts of all weights, is one step, a joint group,
// instead of one for each.
//
// Which join: units of a schedule that are groups without folds, or elementwise nodes by
// themselves, of one scalar program, where no path leads from one to another, the one from who
// reads an old value of an `inout` parameter to who replaces it among them. Their shapes may
// differ; those that are known to be large gain nothing and stay.
//
// A run takes no more memory for it, because units only move where nothing is taken from the
// scratch memory or put back for longer than before:
// - what a member makes becomes results of the function, which have memory of their own or an inout
//   parameter's for the whole run, and no other unit reads it, so that none has to wait for the
//   joint step;
// - members move within a stretch of units that are all such members, or are elementwise and make
//   such results, or are views, or make one number: what the stretch reads is there at its
//   beginning, and so at most is in memory as was then (but for the numbers, of 64 bytes each).
#ifndef OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_
#define OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_

#include <optional>
#include <vector>

#include "executor/plan/schedule.h"
#include "kernels/fused/fuser.h"

namespace opwire {

// As many as that at one time, so that a run can still give way to others between steps.
inline constexpr size_t kMaxMembers = 256;
// Elements of a member, where they are known before sizes are bound.
inline constexpr int64_t kMaxMemberElements = int64_t{1} << 20;

// What an elementwise node does by itself, as a group without a kernel, with numbers read from
// memory as other operands are. Nothing where it fits no kernel. REQUIRES: it has a body.
std::optional<FusedGroup> GroupOfOne(const Scheduled& what, uint32_t n);

// Puts joint groups in the place of what joins. `fusable`: MakeSchedule's.
void JoinEqualUnits(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                    Schedule& schedule);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_HORIZONTAL_H_

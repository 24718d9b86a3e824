// Products of one or two rows of activations with weights, as a decoder has them, in groups of
// their own: linear layers that read the same rows are one step, with the norm that made the rows
// in front and what becomes of each product behind it: elementwise nodes of one or two products
// (silu(gate) * up), or a rotary embedding, and the append to a cache. Such a step takes about as
// long as one of its nodes would, for what it reads is its weights. One product alone is a step
// too: devices may read the weights of such steps before what is in front of them has ended.
//
// A product of many rows, on devices whose kernels finish sums of a tile while they make those of
// the next, or those of a tile while the caches hold them, goes along with the elementwise unit
// that alone reads it. (Where others read it too, a kernel that writes both took 5 to 45 % longer
// on an H200 than one for each.)
//
// A group takes the place of its first product. So all that it reads is there by then, weights are
// parameters, which nobody writes before, and what it makes is read behind it, as is what the norm
// makes beside its rows.
#ifndef OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_
#define OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_

#include <vector>

#include "executor/plan/schedule.h"
#include "kernels/fused/fuser.h"

namespace opwire {

// Puts such groups in the place of their nodes, and of the elementwise groups that they take in.
// `fusable`: MakeSchedule's.
void JoinProducts(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                  Schedule& schedule);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_

// Matmuls of one or two rows of activations with weights, as in a decoder, form groups of their
// own. Linear layers that read the same rows are one step. The norm that made the rows comes first
// in it. The epilogue of each matmul is part of it, too: elementwise nodes of one or two matmuls
// (silu(gate) * up), or a rotary embedding and the append to a cache. Such a step takes about as
// long as one of its nodes would, because the weights are most of its reads. A single matmul is a
// step too: devices may read the weights of such steps before the preceding steps have ended.
// A matmul of many rows forms a group with the elementwise unit that is its only reader. This needs
// a device whose kernels run the epilogue of a tile during the sums of the next tile, or while the
// caches hold the tile. (With other readers, a kernel that writes both took 5 to 45 % longer on an
// H200 than one kernel for each.)
//
// A group takes the place of its first matmul. All its operands exist by then: weights are
// parameters, which are not written before. The results, including the norm's second result, are
// read after the group.
#ifndef OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_
#define OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_

#include <vector>

#include "executor/plan/schedule.h"
#include "kernels/fused/fuser.h"

namespace opwire::executor {

// Replaces these nodes, and the elementwise groups that the new groups take in, by such groups.
// `fusable`: MakeSchedule's.
void JoinProducts(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                  Schedule& schedule);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_PRODUCTS_H_

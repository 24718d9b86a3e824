// Runs a loop over contiguous elements on tensors of any shape and strides: opw_kernel's functions,
// made for one loop.
#ifndef OPWIRE_KERNELS_OPS_ELEMENTWISE_PLAN_H_
#define OPWIRE_KERNELS_OPS_ELEMENTWISE_PLAN_H_

#include "kernels/abi.h"
#include "kernels/ops/elementwise/cpu_loops.h"

namespace opwire::ops::elementwise {

// The loop's operands are the call's first operands, broadcast to the result. With `swap` the loop
// gets them in reverse order.
int PreparePlan(const opw_call* c, ElementwiseLoop loop, int operands, bool swap, void** state);
void ReleasePlan(void* state);
int RunPlan(const opw_call* c);

}  // namespace opwire::ops::elementwise

#endif  // OPWIRE_KERNELS_OPS_ELEMENTWISE_PLAN_H_

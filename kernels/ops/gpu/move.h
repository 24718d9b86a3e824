// Copies between tensors that differ in strides only, as a part of a plan.
#ifndef OPWIRE_KERNELS_OPS_GPU_MOVE_H_
#define OPWIRE_KERNELS_OPS_GPU_MOVE_H_

#include <vector>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// Of `extents`, outermost axis first; strides in elements of `type`, 0 of `from` where it repeats.
struct Move {
  DType type = DType::kInvalid;
  std::vector<int64_t> extents, to_strides, from_strides;
  Source to{}, from{};
};
Status PlanMove(const Call& call, const Move& move, Plan& plan);

// The unsigned integer type of an element's size.
DType BitsType(DType type);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_MOVE_H_

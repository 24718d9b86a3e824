// A graph of cuDNN as a part of a plan.
#ifndef OPWIRE_KERNELS_OPS_GPU_CUDNN_PLAN_H_
#define OPWIRE_KERNELS_OPS_GPU_CUDNN_PLAN_H_

#include <memory>
#include <vector>

#include "kernels/ops/gpu/cudnn.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// Addresses of a graph's tensors are multiples of this many bytes.
inline constexpr int64_t kCudnnAlignment = 16;

// One of a graph's tensors: the call's operand (lists laid flat), or its result.
struct CudnnArgument {
  bool result;
  uint32_t index;
};
// Runs the graph if all addresses are aligned, otherwise the plan of `portable`, as Otherwise does.
// REQUIRES: at most 9 arguments.
void RunCudnn(std::shared_ptr<const CudnnGraph> graph, std::vector<CudnnArgument> arguments,
              const Call& call, Status (*portable)(const Call&, Plan&), Plan& plan);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_CUDNN_PLAN_H_

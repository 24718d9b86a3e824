// Graphs of cuDNN in plans.
#include "kernels/ops/gpu/cudnn_plan.h"

namespace opwire::gpu {

void RunCudnn(std::shared_ptr<const CudnnGraph> graph, std::vector<CudnnArgument> arguments,
              const Call& call, Status (*portable)(const Call&, Plan&), Plan& plan) {
  const int64_t workspace_at = plan.TakeWorkspace(graph->workspace_bytes());
  auto fallback = std::make_shared<Fallback>(call, portable);
  plan.Do([graph = std::move(graph), arguments = std::move(arguments), fallback, workspace_at](
              const opw_call* c, Stream stream) -> Status {
    void* addresses[9];
    for (size_t i = 0; i < arguments.size(); ++i) {
      addresses[i] = arguments[i].result ? c->results[arguments[i].index].data
                                         : c->operands[arguments[i].index].data;
      if (reinterpret_cast<uintptr_t>(addresses[i]) % kCudnnAlignment != 0) return fallback->Run(c);
    }
    return graph->Execute(stream, {addresses, arguments.size()},
                          Plan::WorkspaceOf(c, workspace_at));
  });
}

}  // namespace opwire::gpu

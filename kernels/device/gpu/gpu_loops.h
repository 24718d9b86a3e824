// Loops of a GPU's graphs, by conditional nodes.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_GPU_LOOPS_H_
#define OPWIRE_KERNELS_DEVICE_GPU_GPU_LOOPS_H_

#include <vector>

#include "kernels/device/gpu/driver.h"
#include "kernels/device/loop_capture.h"

namespace opwire::gpu {

class GpuDevice;

class GpuLoops final : public LoopCapture {
 public:
  // Of the device that has it, whose driver has such nodes.
  explicit GpuLoops(GpuDevice& device) : device_(device) {}

  Status BeginLoop(const LoopPlaces& places) override;
  StatusOr<uint32_t> EndLoop() override;
  Status BeginOnce() override;
  StatusOr<uint32_t> EndOnce() override;
  void AbandonLoop() override;
  Status EndEarly(LoopState& state) override;
  Status BeginBranch(const uint8_t* condition, bool otherwise) override;
  Status Otherwise() override;
  Status EndBranch() override;
  void Part() override;

  bool captures() const { return captured_ != nullptr; }

 private:
  using Handle = unsigned long long;
  struct Branch {
    Graph graph;       // that it is in
    GraphNode node;    // of it, the last
    Handle otherwise;  // 0: none
  };

  // The kernels that set conditions; once.
  Status Load();
  StatusOr<Handle> NewHandle(Graph graph, bool initially);
  // A node behind `after` (null: the first) whose body the stream captures from here on.
  Status Enter(Graph graph, GraphNode after, Handle handle, int kind, GraphNode* node);
  // The stream captures into `graph`, behind `after`.
  Status CaptureInto(Graph graph, GraphNode after);
  // It no longer does. The last node put there; null: there is none.
  StatusOr<GraphNode> Leave();
  // Ends all, and hands the failure on.
  Status Failed(Status why) {
    AbandonLoop();
    return why;
  }

  GpuDevice& device_;
  uint32_t beside_ = 0;  // a stream beside the one that loops run on; 0: not made yet
  Function trip_ = nullptr, branch_ = nullptr;
  Graph graph_ = nullptr;       // null: there is no capture
  Graph captured_ = nullptr;    // what the stream captures into; null: nothing
  GraphNode begins_ = nullptr;  // behind which
  Handle handle_ = 0;
  LoopPlaces places_{};
  std::vector<Branch> branches_;
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_GPU_LOOPS_H_

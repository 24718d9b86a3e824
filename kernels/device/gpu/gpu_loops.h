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
  // `device` owns this object; its driver must have such nodes.
  explicit GpuLoops(GpuDevice& device) : device_(device) {}

  Status BeginLoop(const LoopPlaces& places) override;
  StatusOr<uint32_t> EndLoop() override;
  Status BeginOnce() override;
  StatusOr<uint32_t> EndOnce() override;
  void AbandonLoop() override;
  Status EndEarly(LoopState& state) override;
  Status BeginBranch(const uint8_t* condition, bool otherwise) override;
  Status Else() override;
  Status EndBranch() override;
  void Part() override;

  bool captures() const { return captured_ != nullptr; }

 private:
  using Handle = unsigned long long;
  struct Branch {
    Graph graph;       // that contains it
    GraphNode node;    // its last node
    Handle otherwise;  // 0: none
  };

  // The kernels that set conditions; once.
  Status Load();
  StatusOr<Handle> NewHandle(Graph graph, bool initially);
  // Adds a node after `after` (null: the first). The stream then captures the node's body.
  Status Enter(Graph graph, GraphNode after, Handle handle, int kind, GraphNode* node);
  // The stream captures into `graph`, after `after`.
  Status CaptureInto(Graph graph, GraphNode after);
  // Ends that capture. Returns the last node put there; null if there is none.
  StatusOr<GraphNode> Leave();
  // Abandons the loop, and returns the failure.
  Status Failed(Status why) {
    AbandonLoop();
    return why;
  }

  GpuDevice& device_;
  uint32_t beside_ = 0;  // a stream in addition to the one that loops run on; 0: not made yet
  Function iteration_ = nullptr, branch_ = nullptr;
  Graph graph_ = nullptr;       // null: there is no capture
  Graph captured_ = nullptr;    // graph that the stream captures into; null: none
  GraphNode begins_ = nullptr;  // the node after which it captures
  Handle handle_ = 0;
  LoopPlaces places_{};
  std::vector<Branch> branches_;
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_GPU_LOOPS_H_

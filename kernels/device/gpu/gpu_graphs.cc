// Graphs of a GPU: captured with a record of each node's work, so that changes can be applied to
// them.
#include <cstring>
#include <utility>

#include "kernels/device/gpu/gpu_device.h"

namespace opwire::gpu {

Status GpuDevice::BeginCapture(StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  OPWIRE_RETURN_IF_ERROR(
      Check(api_.stream_begin_capture(s, kCaptureThreadLocal), "beginning a capture"));
  if (stream == 0) {
    recording_ = Recording::kCapturing;
    settled_ = true;
    noted_.clear();
  }
  return absl::OkStatus();
}

StatusOr<GraphId> GpuDevice::EndCapture(StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  if (stream == 0) recording_ = Recording::kNone;
  Graph graph = nullptr;
  OPWIRE_RETURN_IF_ERROR(Check(api_.stream_end_capture(s, &graph), "ending a capture"));
  return Keep(graph, stream == 0 ? std::exchange(noted_, {}) : std::vector<Node>());
}

StatusOr<GraphId> GpuDevice::Keep(Graph graph, std::vector<Node> nodes) {
  Captured captured{graph, nullptr, std::move(nodes)};
  if (const Result r = api_.graph_instantiate(&captured.exec, graph, 0); r != kSuccess) {
    (void)api_.graph_destroy(graph);
    return Check(r, "instantiating a graph");
  }
  std::lock_guard lock(mutex_);
  if (spare_graphs_.empty()) {
    graphs_.push_back({});
    spare_graphs_.push_back(static_cast<GraphId>(graphs_.size() - 1));
  }
  const GraphId id = spare_graphs_.back();
  spare_graphs_.pop_back();
  graphs_[id] = std::move(captured);
  return id;
}

void GpuDevice::DestroyGraph(GraphId graph) {
  if (!Enter().ok()) return;
  std::lock_guard lock(mutex_);
  if (graph >= graphs_.size() || !graphs_[graph].graph) return;
  (void)api_.graph_exec_destroy(graphs_[graph].exec);
  (void)api_.graph_destroy(graphs_[graph].graph);
  graphs_[graph] = {};
  spare_graphs_.push_back(graph);
}

// The changes are made as they are met: a graph that does not agree after all is of no use.
Status GpuDevice::BeginUpdate(GraphId graph) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::lock_guard lock(mutex_);
  if (graph >= graphs_.size() || !graphs_[graph].graph)
    return InvalidArgument("no graph {}", graph);
  recording_ = Recording::kComparing;
  compared_ = graph;
  compared_nodes_ = 0;
  agrees_ = true;
  return absl::OkStatus();
}

bool GpuDevice::EndUpdate() {
  recording_ = Recording::kNone;
  std::lock_guard lock(mutex_);
  return agrees_ && compared_nodes_ == graphs_[compared_].nodes.size();
}

bool GpuDevice::Note(Function f, const LaunchShape& shape, const void* bytes, size_t count) {
  if (recording_ == Recording::kNone) return true;
  if (recording_ == Recording::kComparing) {
    Compare(f, shape, bytes, count);
    return false;
  }
  const auto* const from = static_cast<const std::byte*>(bytes);
  noted_.push_back({nullptr, f, shape, {from, from + count}});
  return true;
}

void GpuDevice::Compare(Function f, const LaunchShape& shape, const void* bytes, size_t count) {
  Captured& captured = graphs_[compared_];  // which only this thread changes
  if (!agrees_ || compared_nodes_ == captured.nodes.size()) {
    agrees_ = false;
    return;
  }
  Node& node = captured.nodes[compared_nodes_++];
  agrees_ = node.function == f && node.shape == shape && node.bytes.size() == count;
  if (!agrees_ || std::memcmp(node.bytes.data(), bytes, count) == 0) return;
  std::memcpy(node.bytes.data(), bytes, count);
  void* params[] = {node.bytes.data()};
  const KernelNode changed{f, shape.grid_x,       shape.grid_y, shape.grid_z, shape.threads, 1,
                           1, shape.shared_bytes, params};
  agrees_ = node.node && api_.graph_set_kernel(captured.exec, node.node, &changed) == kSuccess;
}

void GpuDevice::NameLast() {
  if (recording_ != Recording::kCapturing || !api_.capture_info) return;
  int status = 0;
  unsigned long long id = 0;
  Graph graph = nullptr;
  const GraphNode* last = nullptr;
  size_t count = 0;
  if (api_.capture_info(streams_[0], &status, &id, &graph, &last, &count) == kSuccess && count == 1)
    noted_.back().node = *last;
}

bool GpuDevice::TakesWork(std::span<const void* const> addresses) {
  return Note(nullptr, {}, addresses.data(), addresses.size_bytes());
}

Status GpuDevice::Replay(GraphId graph, StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  std::lock_guard lock(mutex_);
  if (graph >= graphs_.size() || !graphs_[graph].graph)
    return InvalidArgument("no graph {}", graph);
  return Check(api_.graph_launch(graphs_[graph].exec, s), "launching a graph");
}

}  // namespace opwire::gpu

// A device whose memory is the host's and whose work is done by the calling thread: the cpu, and
// the null device.
#ifndef OPWIRE_KERNELS_DEVICE_HOST_DEVICE_H_
#define OPWIRE_KERNELS_DEVICE_HOST_DEVICE_H_

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/host_runtime.h"

namespace opwire {

DeviceProbe ProbeCpu();
StatusOr<std::unique_ptr<Device>> OpenCpu(const DeviceOptions& options);
// Has cpu's contract and memory and runs no kernel.
std::unique_ptr<Device> OpenNull();

class HostDevice : public Device {
 public:
  // REQUIRES: info.memory_bytes is the limit of Allocate.
  HostDevice(DeviceInfo info, std::vector<int> pinned);
  ~HostDevice() override;

  const DeviceInfo& info() const override { return info_; }

  StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind) override;
  void Free(void* memory) override;
  MemoryStats memory_stats() const override;
  void ResetPeak() override;
  StatusOr<void*> Reserve(int64_t bytes) override;
  Status Resize(void* reserved, int64_t bytes) override;
  void Unreserve(void* reserved) override;
  Status RegisterHost(void* memory, int64_t bytes) override;
  void UnregisterHost(void* memory) override;

  Status Copy(void* to, const void* from, int64_t bytes, StreamId stream) override;
  Status Zero(void* memory, int64_t bytes, StreamId stream) override;

  StatusOr<StreamId> CreateStream() override { return ++streams_; }
  StatusOr<EventId> Record(StreamId stream) override;
  Status Wait(StreamId stream, EventId event) override;
  bool Done(EventId event) override { return event <= events_; }
  Status Synchronize() override { return absl::OkStatus(); }

  Status BeginCapture(StreamId stream) override;
  StatusOr<GraphId> EndCapture(StreamId stream) override;
  Status Replay(GraphId graph, StreamId stream) override;
  Status BeginUpdate(GraphId graph) override;
  bool EndUpdate() override { return false; }
  void DestroyGraph(GraphId) override {}

  void PushRange(std::string_view) override {}
  void PopRange() override {}

  opw_runtime* runtime() override { return runtime_.abi(); }
  std::atomic<uint32_t>& stop() override { return runtime_.stop(); }
  void NoteStep(uint32_t step) override { runtime_.NoteStep(step); }
  RunFlags TakeFlags() override { return runtime_.TakeFlags(); }

 private:
  Status NoGraphs() const;
  // REQUIRES: mutex_ is held.
  Status Take(int64_t bytes);

  const DeviceInfo info_;
  HostRuntime runtime_;
  std::atomic<StreamId> streams_{0};
  std::atomic<EventId> events_{0};
  mutable std::mutex mutex_;  // guards the following fields
  std::unordered_map<void*, int64_t> blocks_;
  struct Reserved {
    int64_t bytes, backed;
  };
  std::unordered_map<void*, Reserved> reserved_;
  MemoryStats stats_;
};

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_HOST_DEVICE_H_

// A GPU of CUDA or ROCm as a device: memory, copies, streams, events and graphs by the vendor's driver.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_
#define OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/gpu/driver.h"
#include "kernels/device/host_runtime.h"

namespace opwire::gpu {

// One line a GPU ("cuda:0"), or one that says why there is none. Takes no memory of a device.
std::vector<DeviceProbe> ProbeGpus(Vendor vendor);

// `which`: an index ("0"), or a UUID as the vendor's tools print it ("GPU-8f3c..."; case does not matter). FAILED_PRECONDITION: there is no
// driver, no such device, or it takes no process now.
StatusOr<std::unique_ptr<Device>> OpenGpu(Vendor vendor, std::string_view which);

class GpuDevice final : public Device {
 public:
  // Stream 0 is the first that is made. REQUIRES: the context is retained; it is released with this object.
  GpuDevice(const Driver& driver, int device, void* context, DeviceInfo info);
  // Synchronises, and frees what is left.
  ~GpuDevice() override;

  const DeviceInfo& info() const override { return info_; }

  StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind) override;
  void Free(void* memory) override;
  MemoryStats memory_stats() const override;
  void ResetPeak() override;
  Status RegisterHost(void* memory, int64_t bytes) override;
  void UnregisterHost(void* memory) override;

  Status Copy(void* to, const void* from, int64_t bytes, StreamId stream) override;
  Status Zero(void* memory, int64_t bytes, StreamId stream) override;

  StatusOr<StreamId> CreateStream() override;
  StatusOr<EventId> Record(StreamId stream) override;
  Status Wait(StreamId stream, EventId event) override;
  bool Done(EventId event) override;
  Status Synchronize() override;

  Status BeginCapture(StreamId stream) override;
  StatusOr<GraphId> EndCapture(StreamId stream) override;
  Status Replay(GraphId graph, StreamId stream) override;

  void PushRange(std::string_view name) override;
  void PopRange() override;

  opw_runtime* runtime() override { return runtime_.abi(); }
  std::atomic<uint32_t>& stop() override { return runtime_.stop(); }
  RunFlags TakeFlags() override { return runtime_.TakeFlags(); }

 private:
  struct Block {
    int64_t bytes;
    MemoryKind kind;
  };

  // Makes this thread the device's.
  Status Enter() const;
  Status Check(int result, std::string_view what) const { return driver_.Check(result, what); }
  StatusOr<Stream> Find(StreamId stream) const;
  // An event that nobody waits for. REQUIRES: mutex_ is held.
  StatusOr<Event> TakeEvent();

  const uint64_t id_;  // of all that this process has opened
  const Driver& driver_;
  const Api& api_;
  const int device_;
  void* const context_;
  const DeviceInfo info_;
  HostRuntime runtime_;  // of the parts of kernels that the host does
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<void*, Block> blocks_;
  MemoryStats stats_;
  std::vector<Stream> streams_;         // by id
  std::map<EventId, Event> pending_;    // recorded, not known to be done
  std::vector<Event> spare_;
  EventId last_event_ = 0;
  std::vector<GraphExec> graphs_;       // by id
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_

// A GPU of CUDA or ROCm, or an emulated one, as a device: memory, copies, streams, events and
// graphs by the vendor's driver.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_
#define OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/gpu/driver.h"
#include "kernels/device/gpu/flags.h"
#include "kernels/device/gpu/gpu_loops.h"
#include "kernels/device/host_runtime.h"

namespace opwire::gpu {

// One line per GPU ("cuda:0"), or one that says why there is none. Uses no memory of a device.
std::vector<DeviceProbe> ProbeGpus(Vendor vendor);

// `which`: an index ("0"), or a UUID as the vendor's tools print it ("GPU-8f3c..."; case does not
// matter). FAILED_PRECONDITION: no driver, no such device, or the device accepts no process now.
StatusOr<std::unique_ptr<Device>> OpenGpu(Vendor vendor, std::string_view which);

class GpuDevice final : public Device {
 public:
  // REQUIRES: the context is retained; it is released with this object.
  GpuDevice(const Driver& driver, int device, void* context, DeviceInfo info);
  // Synchronises, and frees the remaining memory.
  ~GpuDevice() override;

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

  StatusOr<StreamId> CreateStream() override;
  StatusOr<EventId> Record(StreamId stream) override;
  Status Wait(StreamId stream, EventId event) override;
  bool Done(EventId event) override;
  Status Synchronize() override;

  Status BeginCapture(StreamId stream) override;
  StatusOr<GraphId> EndCapture(StreamId stream) override;
  Status Replay(GraphId graph, StreamId stream) override;
  Status BeginUpdate(GraphId graph) override;
  bool EndUpdate() override;
  void DestroyGraph(GraphId graph) override;
  void AwaitKernels() override;
  LoopCapture* loops() override { return api_.stream_capture_into ? &loops_ : nullptr; }

  void PushRange(std::string_view name) override;
  void PopRange() override;

  opw_runtime* runtime() override { return runtime_.abi(); }
  std::atomic<uint32_t>& stop() override { return runtime_.stop(); }
  void NoteStep(uint32_t step) override {
    reporter_.step = step;
    runtime_.NoteStep(step);
  }
  RunFlags TakeFlags() override;

  // For code that launches kernels, and for libraries that work on this thread's device.
  Status Bind() const { return Enter(); }
  StatusOr<Module> LoadModule(const std::string& image);
  void UnloadModule(Module module);
  // NOT_FOUND if the module has no kernel of that name.
  StatusOr<Function> FindFunction(Module module, const char* name);
  // The next AwaitKernels runs `work`. Any thread.
  void WhenAwaited(std::function<void()> work);
  // Before a function is launched with more dynamic shared memory than 48 KiB. Any thread.
  Status AllowShared(Function f, int bytes);
  // Most shared memory of a block, in bytes.
  int shared_bytes() const {
    return driver_.Get(Attribute::kSharedBytes, device_).value_or(48 << 10);
  }
  // A matrix of contiguous rows, for kernels that copy tiles of it. A tile has `tile_rows` rows (at
  // most 256) and 128 bytes of each, swizzled.
  struct Tiled {
    int64_t element_bytes, rows, columns, row_stride;  // 1 or 2 bytes; the stride in elements, a
                                                       // multiple of 16 bytes; extents below 2^31
    int tile_rows;
  };
  // Returns the parameter for such a kernel, for a matrix at `address`, which is aligned to 16
  // bytes. UNIMPLEMENTED if the device has no such copies.
  StatusOr<opw::TileMap> MapTiles(const Tiled& matrix, void* address) const;
  // A launch on stream 0, with one parameter of `bytes` bytes. `params` is copied.
  struct LaunchShape {
    unsigned grid_x = 1, grid_y = 1, grid_z = 1, threads = 1, shared_bytes = 0;
    bool overlaps = false;     // the kernel itself awaits the previous work (AwaitPrevious of
                               // opwire/gpu.h), so it may begin while that still runs
    bool reads_early = false;  // before it waits, it reads memory that nothing in its capture
                               // writes; it overlaps only if it is captured
    bool operator==(const LaunchShape&) const = default;
  };
  Status Launch(Function f, const LaunchShape& shape, const void* params, size_t bytes);
  // Call before a library's work is put on stream 0, with all addresses that it gets. False: the
  // work must not be put there now.
  bool TakesWork(std::span<const void* const> addresses);
  Stream stream(StreamId id) const { return Find(id).value_or(nullptr); }
  // Where kernels report, for the step that was noted last.
  const opw::Reporter& reporter() const { return reporter_; }
  const Driver& driver() const { return driver_; }

  // Makes stream 0 and the memory for reports. Call once, before all else.
  Status Start();

 private:
  friend GpuLoops;
  struct Block {
    int64_t bytes;
    MemoryKind kind;
  };
  struct Chunk {
    int64_t bytes;
    MemoryHandle handle;
  };
  struct Reserved {
    int64_t bytes, backed;
    std::vector<Chunk> chunks;  // its physical memory, in order
  };
  // The work that a graph's node was made from.
  struct Node {
    GraphNode node = nullptr;     // null: not one of our kernels, or it cannot be changed
    Function function = nullptr;  // null: a copy, a fill, or a library's work
    LaunchShape shape;
    std::vector<std::byte> bytes;  // its parameter, or the addresses
  };
  struct Captured {
    Graph graph = nullptr;  // null: destroyed
    GraphExec exec = nullptr;
    std::vector<Node> nodes;
  };
  // Makes the graph ready to be replayed.
  StatusOr<GraphId> Keep(Graph graph, std::vector<Node> nodes);
  // Whether the work is to be put on stream 0. False if it is compared with a graph's.
  bool Note(Function f, const LaunchShape& shape, const void* bytes, size_t count);
  void Compare(Function f, const LaunchShape& shape, const void* bytes, size_t count);
  void NameLast();  // records the node of the last noted work, which has been put on the stream

  // REQUIRES: mutex_ is held.
  Status Grow(void* base, Reserved& r, int64_t bytes);
  void Shrink(void* base, Reserved& r, int64_t bytes);
  Status OutOfMemory(int64_t bytes, MemoryKind kind, std::string_view why) const;

  // Makes the device current on this thread.
  Status Enter() const;
  Status Check(int result, std::string_view what) const { return driver_.Check(result, what); }
  StatusOr<Stream> Find(StreamId stream) const;
  // Returns an event that is not waited for. REQUIRES: mutex_ is held.
  StatusOr<Event> TakeEvent();

  const uint64_t id_;  // of all that this process has opened
  const Driver& driver_;
  const Api& api_;
  const int device_;
  void* const context_;
  const DeviceInfo info_;
  bool settled_ = true;  // of the capture: work after the last launch begins only when all work
                         // before LoopCapture::Part has ended
  const bool overlaps_;  // launches may begin before the previous work on the stream has ended
  HostRuntime runtime_;  // for those parts of kernels that run on the host
  static constexpr unsigned long long kNothingReported = ~0ull;  // FlagBlock::first
  Status ClearFlags();

  opw::Reporter reporter_{};
  volatile unsigned* changed_ = nullptr;  // of the flag block
  mutable std::mutex mutex_;              // guards the following fields
  std::unordered_map<void*, Block> blocks_;
  std::unordered_map<void*, Reserved> reserved_;
  MemoryStats stats_;
  std::vector<Stream> streams_;       // by id
  std::map<EventId, Event> pending_;  // recorded, not known to be done
  std::vector<Event> spare_;
  EventId last_event_ = 0;
  std::vector<Captured> graphs_;  // by id
  std::vector<GraphId> spare_graphs_;
  std::unordered_map<Function, int> shared_;  // bytes of dynamic shared memory that were asked for
  std::vector<std::function<void()>> awaited_;
  // Used on the device thread only.
  enum class Recording : uint8_t { kNone, kCapturing, kComparing } recording_ = Recording::kNone;
  std::vector<Node> noted_;  // of the capture
  GraphId compared_ = 0;
  size_t compared_nodes_ = 0;
  bool agrees_ = true;
  GpuLoops loops_{*this};
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_GPU_DEVICE_H_

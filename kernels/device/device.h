// The accelerator contract: what the executor asks of a device, whichever it is. One object is one
// bound accelerator.
//
//   for (const DeviceProbe& p : ProbeDevices()) ...              // what is here, and why not
//   auto device = OpenDevice("cpu", {.cores = "0-3"});
//   auto memory = (*device)->Allocate(1 << 20, MemoryKind::kDevice);
//
// Work on a stream runs in order. On a device whose work is done by the calling thread (cpu) every
// call completes before it returns, and streams and events are names only; on others it completes
// later, as events and Synchronize tell. Any thread may call.
#ifndef OPWIRE_KERNELS_DEVICE_DEVICE_H_
#define OPWIRE_KERNELS_DEVICE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/device/loop_capture.h"

namespace opwire {

struct DeviceInfo {
  std::string kind;  // "cpu", "cuda", "hip", "emu", "null"
  int index = 0;
  std::string name;                 // the vendor's: "AMD EPYC", "NVIDIA H200"
  std::string uuid;                 // empty where the device has none
  std::string arch;                 // what kernels are built for: "x86-64 avx2 avx512f", "sm_90a"
  int64_t memory_bytes = 0;         // what the device may hold at the most
  int compute_units = 0;            // cores bound, or multiprocessors
  double call_ns = 20;              // what a small kernel takes, and
  double bytes_per_ns = 10;         // how fast large ones are: for estimates,
  double flops_per_ns = 10;         // within a factor of a few,
  double narrow_flops_per_ns = 10;  // of operations on floats of 16 bits and fewer
  bool host_memory = false;         // the host reads and writes the device's memory in place
  DTypeSet dtypes;                  // that some kernel here computes with
  std::string collective_backend;   // "gloo", "nccl"; empty: none
  std::map<std::string, std::string> facts;  // driver and library versions, for the report
};

struct DeviceProbe {
  std::string spec;  // what --device would be: "cpu", "cuda:0"
  bool usable;
  std::string reason;  // why it is or is not
};

struct DeviceOptions {
  std::string cores;  // "0-3,6"; empty: all that this process may use
};

enum class MemoryKind : uint8_t { kDevice, kPinnedHost };

struct MemoryStats {
  int64_t in_use = 0;
  int64_t peak = 0;
  int64_t limit = 0;
};

using StreamId = uint32_t;  // 0: the default stream
using EventId = uint32_t;
using GraphId = uint32_t;

// What a run left behind in the runtime.
struct RunFlags {
  uint32_t raised = 0;  // OPW_FLAG_*
  int out_of_range_operand =
      -1;  // of the first step that met a value out of its domain; -1: none did
  int64_t out_of_range_position = 0;
  uint32_t out_of_range_step = 0;
};

// What OpenDevice opens it by: "cpu", "cuda:1".
std::string SpecOf(const DeviceInfo& info);

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // 64-byte aligned at least, contents undefined. RESOURCE_EXHAUSTED beyond the limit, with what
  // was asked and what is free.
  virtual StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind) = 0;
  virtual void Free(void* memory) = 0;
  // Of the device's memory: pinned host memory counts where that is the same.
  virtual MemoryStats memory_stats() const = 0;
  virtual void ResetPeak() = 0;
  // Address space for up to `bytes` bytes of device memory, none of which is there until Resize
  // backs the first of them. Shrinking gives memory back once the work before it is done.
  // RESOURCE_EXHAUSTED as Allocate.
  virtual StatusOr<void*> Reserve(int64_t bytes) = 0;
  virtual Status Resize(void* reserved, int64_t bytes) = 0;
  virtual void Unreserve(void* reserved) = 0;
  // Makes host memory that lives elsewhere reachable for copies at full speed (and for kernels on a
  // cpu).
  virtual Status RegisterHost(void* memory, int64_t bytes) = 0;
  virtual void UnregisterHost(void* memory) = 0;

  virtual Status Copy(void* to, const void* from, int64_t bytes, StreamId stream) = 0;
  virtual Status Zero(void* memory, int64_t bytes, StreamId stream) = 0;

  virtual StatusOr<StreamId> CreateStream() = 0;
  virtual StatusOr<EventId> Record(StreamId stream) = 0;
  virtual Status Wait(StreamId stream, EventId event) = 0;
  virtual bool Done(EventId event) = 0;
  virtual Status Synchronize() = 0;

  // What this thread puts on the stream between the two becomes a graph, and does not run.
  // UNIMPLEMENTED on a device without graphs.
  virtual Status BeginCapture(StreamId stream) = 0;
  virtual StatusOr<GraphId> EndCapture(StreamId stream) = 0;
  virtual Status Replay(GraphId graph, StreamId stream) = 0;
  // What this thread puts on stream 0 between the two, which must be the work that the graph was
  // captured from, is compared with it; addresses that differ are put into the graph, and nothing
  // runs. False: something else differs, and it is to be captured anew.
  virtual Status BeginUpdate(GraphId graph) = 0;
  virtual bool EndUpdate() = 0;
  virtual void DestroyGraph(GraphId graph) = 0;     // once its replays are done
  virtual LoopCapture* loops() { return nullptr; }  // null: graphs here have no loops

  // Waits for the kernels of calls that were prepared: they may be compiled beside that, and code
  // cannot be loaded while a graph is captured. One that does not compile fails where it is run.
  // The device thread's.
  virtual void AwaitKernels() {}

  virtual void PushRange(std::string_view name) = 0;
  virtual void PopRange() = 0;

  // What kernels are called with. `stop` is read between ranges: nonzero skips the rest of a
  // parallel_for.
  virtual opw_runtime* runtime() = 0;
  virtual std::atomic<uint32_t>& stop() = 0;
  // What kernels that are called from here on report is this step's, below 65536. The device
  // thread's.
  virtual void NoteStep(uint32_t step) = 0;
  // Flags since the last call, of work that is done.
  virtual RunFlags TakeFlags() = 0;
};

std::vector<DeviceProbe> ProbeDevices();
// `spec` is "cpu", "null", "auto", "cuda:N", "cuda:UUID", "hip:N", "hip:UUID" or "emu:N"; without a
// number the first. FAILED_PRECONDITION says why it cannot be bound, and what can. "null" has cpu's
// contract and its memory, and runs no kernel: for simulations. "emu" runs the GPU kernels on the
// CPU, to check them: emu:0 with waves of 32 lanes, emu:1 of 64.
StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view spec, const DeviceOptions& options);
// Why "auto" came to this one, in a line.
std::string WhyChosen(std::string_view spec);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_DEVICE_H_

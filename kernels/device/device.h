// The accelerator contract: what the executor requires of every device. One object is one bound
// accelerator.
//
//   for (const DeviceProbe& p : ProbeDevices()) ...              // each device, or why not
//   auto device = OpenDevice("cpu", {.cores = "0-3"});
//   auto memory = (*device)->Allocate(1 << 20, MemoryKind::kDevice);
//
// Work on a stream runs in order. On a device whose work is done by the calling thread (cpu) every
// call completes before it returns, and streams and events are only names. On other devices work
// completes later, as events and Synchronize report. Any thread may call.
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
  std::string name;          // the vendor's: "AMD EPYC", "NVIDIA H200"
  std::string uuid;          // empty if the device has none
  std::string arch;          // what kernels are built for: "x86-64 avx2 avx512f", "sm_90a"
  int64_t memory_bytes = 0;  // most memory that the device may use
  int compute_units = 0;     // cores bound, or multiprocessors
  // The next four are estimates, within a factor of a few.
  double call_ns = 20;       // time of a small kernel
  double bytes_per_ns = 10;  // speed of large kernels
  double flops_per_ns = 10;
  double narrow_flops_per_ns = 10;  // of operations on floats of 16 bits and fewer
  bool host_memory = false;         // the host reads and writes the device's memory in place
  DTypeSet dtypes;                  // that at least one kernel here computes with
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

// Reports of a run that are left in the runtime.
struct RunFlags {
  uint32_t raised = 0;  // OPW_FLAG_*
  int out_of_range_operand =
      -1;  // of the first step that found a value out of its domain; -1: no step did
  int64_t out_of_range_position = 0;
  uint32_t out_of_range_step = 0;
};

// The string that opens it with OpenDevice: "cpu", "cuda:1".
std::string SpecOf(const DeviceInfo& info);

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // At least 64-byte aligned, contents undefined. RESOURCE_EXHAUSTED beyond the limit, with the
  // requested and the free bytes.
  virtual StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind) = 0;
  virtual void Free(void* memory) = 0;
  // Of the device's memory. Pinned host memory counts if it is the same memory.
  virtual MemoryStats memory_stats() const = 0;
  virtual void ResetPeak() = 0;
  // Reserves address space for up to `bytes` bytes of device memory. None of it is backed until
  // Resize backs the first bytes. Shrinking returns memory once the work before it is done.
  // RESOURCE_EXHAUSTED as for Allocate.
  virtual StatusOr<void*> Reserve(int64_t bytes) = 0;
  virtual Status Resize(void* reserved, int64_t bytes) = 0;
  virtual void Unreserve(void* reserved) = 0;
  // Makes host memory that is allocated elsewhere available for copies at full speed (and for
  // kernels on a cpu).
  virtual Status RegisterHost(void* memory, int64_t bytes) = 0;
  virtual void UnregisterHost(void* memory) = 0;

  virtual Status Copy(void* to, const void* from, int64_t bytes, StreamId stream) = 0;
  virtual Status Zero(void* memory, int64_t bytes, StreamId stream) = 0;

  virtual StatusOr<StreamId> CreateStream() = 0;
  virtual StatusOr<EventId> Record(StreamId stream) = 0;
  virtual Status Wait(StreamId stream, EventId event) = 0;
  virtual bool Done(EventId event) = 0;
  virtual Status Synchronize() = 0;

  // Work that this thread puts on the stream between the two calls becomes a graph, and does not
  // run. UNIMPLEMENTED on a device without graphs.
  virtual Status BeginCapture(StreamId stream) = 0;
  virtual StatusOr<GraphId> EndCapture(StreamId stream) = 0;
  virtual Status Replay(GraphId graph, StreamId stream) = 0;
  // Work that this thread puts on stream 0 between the two calls is compared with the graph, which
  // must have been captured from the same work. Addresses that differ are put into the graph, and
  // nothing runs. False: something else differs, so the graph must be captured again.
  virtual Status BeginUpdate(GraphId graph) = 0;
  virtual bool EndUpdate() = 0;
  virtual void DestroyGraph(GraphId graph) = 0;     // once its replays are done
  virtual LoopCapture* loops() { return nullptr; }  // null: graphs here have no loops

  // Waits for the kernels of prepared calls: they may be compiled in the background, and code
  // cannot be loaded while a graph is captured. A kernel that does not compile fails when it is
  // run. Call on the device thread only.
  virtual void AwaitKernels() {}

  virtual void PushRange(std::string_view name) = 0;
  virtual void PopRange() = 0;

  // The runtime that kernels are called with. `stop` is read between ranges: nonzero skips the rest
  // of a parallel_for.
  virtual opw_runtime* runtime() = 0;
  virtual std::atomic<uint32_t>& stop() = 0;
  // Reports of kernels that are called afterwards count for this step, which is below 65536. Call
  // on the device thread only.
  virtual void NoteStep(uint32_t step) = 0;
  // Flags since the last call, of work that is done.
  virtual RunFlags TakeFlags() = 0;
};

std::vector<DeviceProbe> ProbeDevices();
// `spec` is "cpu", "null", "auto", "cuda:N", "cuda:UUID", "hip:N", "hip:UUID" or "emu:N"; without a
// number the first device. FAILED_PRECONDITION says why it cannot be bound, and which devices can.
// "null" has cpu's contract and its memory, and runs no kernel: for simulations. "emu" runs the GPU
// kernels on the CPU, to check them: emu:0 with waves of 32 lanes, emu:1 with 64.
StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view spec, const DeviceOptions& options);
// One line that says why "auto" chose this one.
std::string WhyChosen(std::string_view spec);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_DEVICE_H_

// A GPU vendor's driver, opened at run time. CUDA's driver interface and HIP's agree except for
// names, so one table of functions serves both. The emulator (kernels/device/emu) is a third
// driver, which is part of this program.
//
//   OPWIRE_ASSIGN_OR_RETURN(const Driver* driver, Driver::Open(Vendor::kCuda));
//   OPWIRE_RETURN_IF_ERROR(driver->Check(driver->api().mem_alloc(&memory, bytes), "allocating"));
//
// Nothing of a vendor is needed to build: the same program starts without a GPU and says why it
// cannot use one.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_
#define OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::gpu {

enum class Vendor : uint8_t { kCuda, kHip, kEmu };
std::string_view VendorName(Vendor vendor);  // "cuda", "hip", "emu"

// Objects of the driver.
using Stream = struct StreamOfDriver*;
using Event = struct EventOfDriver*;
using Graph = struct GraphOfDriver*;
using GraphExec = struct GraphExecOfDriver*;
using GraphNode = struct GraphNodeOfDriver*;
using Module = struct ModuleOfDriver*;
using Function = struct FunctionOfDriver*;

// CUmemAllocationProp and CUmemAccessDesc; HIP's have the same layout.
struct MemoryLocation {
  int type = 1;  // a device
  int id = 0;
};
struct MemoryProperties {
  int type = 1;  // pinned to it
  int handle_types = 0;
  MemoryLocation location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // reading and writing
};
using MemoryHandle = unsigned long long;

// CUDA_KERNEL_NODE_PARAMS; HIP's has another layout.
struct KernelNode {
  Function function = nullptr;
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  void* context = nullptr;
};

// CUgraphNodeParams of a conditional node.
struct ConditionalNode {
  int type = 13;
  int reserved[3] = {};
  unsigned long long handle = 0;
  int kind = 0;
  unsigned count = 1;       // of bodies
  Graph* bodies = nullptr;  // set by the driver once the node exists
  void* context = nullptr;
  long long unused[26] = {};
};
static_assert(sizeof(ConditionalNode) == 256);

// CUlaunchConfig and CUlaunchAttribute. The attribute lets a kernel begin before the previous work
// on the stream has ended.
struct alignas(8) LaunchAttribute {
  int id = 6;  // programmatic stream serialisation
  int padding = 0;
  int value = 1;
  char rest[60] = {};
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  const LaunchAttribute* attributes;
  unsigned count;
};

// Results that callers distinguish: their numbers are CUDA's and HIP's.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
};

struct Api {
  Result (*init)(unsigned flags);
  Result (*driver_version)(int*);
  Result (*device_count)(int*);
  Result (*device_get)(int* device, int ordinal);
  Result (*device_name)(char*, int bytes, int device);
  Result (*device_uuid)(void* sixteen_bytes, int device);
  Result (*device_memory)(size_t* bytes, int device);
  Result (*device_attribute)(int*, int attribute, int device);
  Result (*mem_info)(size_t* free, size_t* total);
  Result (*mem_alloc)(void**, size_t bytes);
  Result (*mem_free)(void*);
  Result (*host_alloc)(void**, size_t bytes, unsigned flags);
  Result (*host_free)(void*);
  Result (*host_register)(void*, size_t bytes, unsigned flags);
  Result (*host_unregister)(void*);
  Result (*memset8)(void*, unsigned char, size_t bytes, Stream);
  Result (*stream_create)(Stream*, unsigned flags);
  Result (*stream_destroy)(Stream);
  Result (*stream_synchronize)(Stream);
  Result (*stream_wait)(Stream, Event, unsigned flags);
  Result (*stream_begin_capture)(Stream, int mode);
  Result (*stream_end_capture)(Stream, Graph*);
  Result (*event_create)(Event*, unsigned flags);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, Stream);
  Result (*event_query)(Event);
  Result (*graph_instantiate)(GraphExec*, Graph, unsigned long long flags);
  Result (*graph_launch)(GraphExec, Stream);
  Result (*graph_exec_destroy)(GraphExec);
  Result (*graph_destroy)(Graph);
  // Null in HIP: graphs captured there are never changed.
  Result (*capture_info)(Stream, int* status, unsigned long long* id, Graph*,
                         const GraphNode** last, size_t* count);
  Result (*graph_set_kernel)(GraphExec, GraphNode, const KernelNode*);
  // Conditional nodes. Null in HIP, and if CUDA's driver is older than 12.4.
  Result (*graph_create)(Graph*, unsigned flags);
  Result (*graph_condition)(unsigned long long* handle, Graph, void* context, unsigned initially,
                            unsigned flags);
  Result (*graph_add)(GraphNode*, Graph, const GraphNode* after, const void* edges, size_t count,
                      ConditionalNode*);
  Result (*stream_capture_into)(Stream, Graph, const GraphNode* after, const void* edges,
                                size_t count, int mode);
  // The emulator's: the kernels that exist as code for CUDA (gpu_loops.cc).
  void (*loop_kernels)(Function* iteration, Function* branch);
  // Null except in CUDA's. Types, sizes and modes as in cuda.h.
  Result (*tile_map)(void* map, int type, unsigned rank, void* address,
                     const unsigned long long* extents, const unsigned long long* strides,
                     const unsigned* tile, const unsigned* steps, int interleave, int swizzle,
                     int promotion, int fill);
  Result (*module_load)(Module*, const void* image);
  Result (*module_unload)(Module);
  Result (*module_function)(Function*, Module, const char* name);
  Result (*function_set)(Function, int attribute, int value);
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** params,
                   void** extra);
  Result (*launch_with)(const LaunchConfig*, Function, void** params,
                        void** extra);  // null except in CUDA's
  Result (*memory_reserve)(void**, size_t bytes, size_t alignment, void* at,
                           unsigned long long flags);
  Result (*memory_free)(void*, size_t bytes);
  Result (*memory_create)(MemoryHandle*, size_t bytes, const MemoryProperties*,
                          unsigned long long flags);
  Result (*memory_release)(MemoryHandle);
  Result (*memory_map)(void*, size_t bytes, size_t offset, MemoryHandle, unsigned long long flags);
  Result (*memory_unmap)(void*, size_t bytes);
  Result (*memory_access)(void*, size_t bytes, const MemoryAccess*, size_t count);
};

// Flags of both.
inline constexpr unsigned kHostPortable = 1, kStreamNonBlocking = 1, kEventNoTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kDynamicSharedBytes = 8;  // of a function

enum class Attribute : uint8_t {
  kMultiprocessors,
  kComputeMode,
  kL2Bytes,
  kSharedBytes
};  // of shared memory that a block may ask for
// Values of Attribute::kComputeMode.
enum ComputeMode : int { kDefaultMode = 0, kProhibited = 2, kExclusiveProcess = 3 };

class Driver {
 public:
  // The one object of this process. It is never closed, and an error is final. FAILED_PRECONDITION:
  // the driver is missing (with the places that were searched), is older than kOldestCuda, does not
  // start, or has no device.
  static StatusOr<const Driver*> Open(Vendor vendor);

  Vendor vendor() const { return vendor_; }
  const Api& api() const { return api_; }
  const std::string& version() const { return version_; }  // "CUDA 13.0", "ROCm 6.2"

  // "NAME: what it means", in the vendor's words.
  std::string Describe(int result) const;
  // OK; RESOURCE_EXHAUSTED if memory is short, else INTERNAL: "cuda: WHAT: NAME: what it means".
  Status Check(int result, std::string_view what) const;

  Result Copy(void* to, const void* from, size_t bytes, Stream stream) const;
  StatusOr<int> Get(Attribute attribute, int device) const;
  // "sm_90a", "gfx90a", "emu32": what kernels are built for.
  StatusOr<std::string> Arch(int device) const;
  // The device's primary context, which this whole process shares. HIP's contexts are implicit.
  Result Retain(int device, void** context) const;
  void Release(int device) const;
  // Later calls of this thread go to the device. `context` is Retain's.
  Result MakeCurrent(void* context, int device) const;

 private:
  explicit Driver(Vendor vendor) : vendor_(vendor) {}
  static StatusOr<const Driver*> OpenFirst(Vendor vendor);
  Status Resolve(void* library);
  void Emulate();

  const Vendor vendor_;
  Api api_ = {};
  std::string version_;
  // Functions that differ between the two. The emulator's are CUDA's.
  Result (*cuda_copy_)(void*, const void*, size_t, Stream) = nullptr;
  Result (*cuda_retain_)(void** context, int device) = nullptr;
  Result (*cuda_release_)(int device) = nullptr;
  Result (*cuda_set_current_)(void* context) = nullptr;
  Result (*cuda_error_name_)(int, const char**) = nullptr;
  Result (*cuda_error_text_)(int, const char**) = nullptr;
  Result (*hip_copy_)(void*, const void*, size_t, int kind, Stream) = nullptr;
  Result (*hip_set_device_)(int device) = nullptr;
  Result (*hip_properties_)(void* properties, int device) = nullptr;
  const char* (*hip_error_name_)(int) = nullptr;
  const char* (*hip_error_text_)(int) = nullptr;
};

// 90 for "sm_90a"; 0 for architectures that are not CUDA's.
int CudaArchitecture(std::string_view arch);

// CUDA 12.0, as the driver numbers it: code that NVRTC 12 and 13 make needs at least that.
inline constexpr int kOldestCuda = 12000;

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_

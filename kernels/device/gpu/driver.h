// A GPU vendor's driver, opened at run time: one table of functions for CUDA's driver interface and HIP's, which agree but for names.
//
//   OPWIRE_ASSIGN_OR_RETURN(const Driver* driver, Driver::Open(Vendor::kCuda));
//   OPWIRE_RETURN_IF_ERROR(driver->Check(driver->api().mem_alloc(&memory, bytes), "allocating"));
//
// Nothing of a vendor is needed to build: the same program starts where there is no GPU and says why it cannot use one.
#ifndef OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_
#define OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::gpu {

enum class Vendor : uint8_t { kCuda, kHip };
std::string_view VendorName(Vendor vendor);  // "cuda", "hip"

// Objects of the driver.
using Stream = struct StreamOfDriver*;
using Event = struct EventOfDriver*;
using Graph = struct GraphOfDriver*;
using GraphExec = struct GraphExecOfDriver*;

// Results that are told apart: their numbers are CUDA's and HIP's.
enum Result : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNotReady = 600,
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
};

// Flags of both.
inline constexpr unsigned kHostPortable = 1, kStreamNonBlocking = 1, kEventNoTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;

enum class Attribute : uint8_t { kMultiprocessors, kComputeMode, kL2Bytes };
// What Attribute::kComputeMode gives.
enum ComputeMode : int { kDefaultMode = 0, kProhibited = 2, kExclusiveProcess = 3 };

class Driver {
 public:
  // The one object of this process; it is never closed, and a refusal stays. FAILED_PRECONDITION: the driver is not there (with where it was looked for), is
  // older than kOldestCuda, does not start, or has no device.
  static StatusOr<const Driver*> Open(Vendor vendor);

  Vendor vendor() const { return vendor_; }
  const Api& api() const { return api_; }
  const std::string& version() const { return version_; }  // "CUDA 13.0", "ROCm 6.2"

  // "NAME: what it means", as the vendor has it.
  std::string Describe(int result) const;
  // OK; RESOURCE_EXHAUSTED where memory is short, else INTERNAL: "cuda: WHAT: NAME: what it means".
  Status Check(int result, std::string_view what) const;

  Result Copy(void* to, const void* from, size_t bytes, Stream stream) const;
  StatusOr<int> Get(Attribute attribute, int device) const;
  // "sm_90a": what kernels are built for.
  StatusOr<std::string> Arch(int device) const;
  // The device's own context, which all of this process share; HIP has none that one sees.
  Result Retain(int device, void** context) const;
  void Release(int device) const;
  // What this thread does from here on is the device's. `context` is Retain's.
  Result MakeCurrent(void* context, int device) const;

 private:
  explicit Driver(Vendor vendor) : vendor_(vendor) {}
  static StatusOr<const Driver*> OpenFirst(Vendor vendor);
  Status Resolve(void* library);

  const Vendor vendor_;
  Api api_ = {};
  std::string version_;
  // What the two do not have alike.
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

// CUDA 12.0, as the driver numbers it: what NVRTC 12 and 13 make needs at least that.
inline constexpr int kOldestCuda = 12000;

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_DEVICE_GPU_DRIVER_H_

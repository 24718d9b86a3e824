// The functions that are used, declared here by their binary interfaces. Pointers to device memory
// are void* in HIP and 64-bit integers in CUDA, which have the same calling convention.
#include "kernels/device/gpu/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/device/emu/driver.h"

namespace opwire::gpu {
namespace {

static_assert(sizeof(void*) == 8);

struct Places {
  const char* setting;  // an environment variable with the library's file
  std::vector<const char*> names;
};

const Places& PlacesOf(Vendor vendor) {
  static const Places kCuda = {"OPWIRE_CUDA_DRIVER", {"libcuda.so.1"}};
  static const Places kHip = {"OPWIRE_HIP",
                              {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                               "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"}};
  return vendor == Vendor::kCuda ? kCuda : kHip;
}

// Of CUdevice_attribute, and of hipDeviceAttribute_t since ROCm 5.
int NumberOf(Vendor vendor, Attribute attribute) {
  const bool cuda = vendor != Vendor::kHip;  // the emulator has CUDA's
  switch (attribute) {
    case Attribute::kMultiprocessors:
      return cuda ? 16 : 63;
    case Attribute::kSharedBytes:
      return cuda ? 97 : 74;
    case Attribute::kComputeMode:
      return cuda ? 20 : 6;
    case Attribute::kL2Bytes:
      return cuda ? 38 : 19;
  }
  return -1;
}
constexpr int kCudaCapabilityMajor = 75, kCudaCapabilityMinor = 76;
constexpr int kHipCopyByAddress = 4;
constexpr const char* kHipNode = "/dev/kfd";  // through it ROCm accesses all its devices

std::string VersionText(Vendor vendor, int version) {
  if (vendor == Vendor::kCuda)
    return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  return fmt::format("ROCm {}.{}", version / 10'000'000, version / 100'000 % 100);
}

}  // namespace

int CudaArchitecture(std::string_view arch) {
  int number = 0;
  if (arch.starts_with("sm_")) std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

std::string_view VendorName(Vendor vendor) {
  return vendor == Vendor::kCuda ? "cuda" : vendor == Vendor::kHip ? "hip" : "emu";
}

StatusOr<const Driver*> Driver::Open(Vendor vendor) {
  if (vendor == Vendor::kCuda) {
    static const StatusOr<const Driver*> cuda = OpenFirst(Vendor::kCuda);
    return cuda;
  }
  if (vendor == Vendor::kEmu) {
    static const Driver* const emu = [] {
      Driver* const driver = new Driver(Vendor::kEmu);
      driver->Emulate();
      return driver;
    }();
    return emu;
  }
  static const StatusOr<const Driver*> hip = OpenFirst(Vendor::kHip);
  return hip;
}

StatusOr<const Driver*> Driver::OpenFirst(Vendor vendor) {
  // Its library has several hundred megabytes, so it is not loaded without a device.
  if (vendor == Vendor::kHip && access(kHipNode, F_OK) != 0)
    return FailedPrecondition("no device: there is no {}", kHipNode);
  const Places& places = PlacesOf(vendor);
  std::vector<const char*> names = places.names;
  if (const char* named = std::getenv(places.setting); named && *named) names = {named};
  void* library = nullptr;
  std::string reasons;
  for (const char* name : names) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    const char* why = dlerror();
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", why ? why : name);
  }
  if (!library)
    return FailedPrecondition("no driver: {} ({} may name its file)", reasons, places.setting);
  std::unique_ptr<Driver> driver(new Driver(vendor));
  OPWIRE_RETURN_IF_ERROR(driver->Resolve(library));
  int version = 0;
  if (const Result r = driver->api_.driver_version(&version); r != kSuccess)
    return FailedPrecondition("the driver has no version: {}", driver->Describe(r));
  driver->version_ = VersionText(vendor, version);
  if (vendor == Vendor::kCuda && version < kOldestCuda) {
    return FailedPrecondition("the driver is too old: expected {} at least, got {}",
                              VersionText(vendor, kOldestCuda), driver->version_);
  }
  // If there is no device, HIP's library reports that only when devices are counted.
  const Result started = driver->api_.init(0);
  int devices = 0;
  const Result counted = driver->api_.device_count(&devices);
  if (counted == kNoDevice || started == kNoDevice || (counted == kSuccess && devices == 0))
    return FailedPrecondition("no device; the driver is there ({})", driver->version_);
  if (started != kSuccess || counted != kSuccess) {
    return FailedPrecondition("the driver ({}) does not start: {}", driver->version_,
                              driver->Describe(started != kSuccess ? started : counted));
  }
  return driver.release();  // as long as the process: drivers cannot be closed safely
}

Status Driver::Resolve(void* library) {
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    if (!name) return;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && missing.empty()) missing = name;
  };
  const bool cuda = vendor_ == Vendor::kCuda;
  const auto both = [&](auto& function, const char* cuda_name, const char* hip_name) {
    find(function, cuda ? cuda_name : hip_name);
  };
  both(api_.init, "cuInit", "hipInit");
  both(api_.driver_version, "cuDriverGetVersion", "hipDriverGetVersion");
  both(api_.device_count, "cuDeviceGetCount", "hipGetDeviceCount");
  both(api_.device_get, "cuDeviceGet", "hipDeviceGet");
  both(api_.device_name, "cuDeviceGetName", "hipDeviceGetName");
  both(api_.device_uuid, "cuDeviceGetUuid_v2", "hipDeviceGetUuid");
  both(api_.device_memory, "cuDeviceTotalMem_v2", "hipDeviceTotalMem");
  both(api_.device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute");
  both(api_.mem_info, "cuMemGetInfo_v2", "hipMemGetInfo");
  both(api_.mem_alloc, "cuMemAlloc_v2", "hipMalloc");
  both(api_.mem_free, "cuMemFree_v2", "hipFree");
  both(api_.host_alloc, "cuMemHostAlloc", "hipHostMalloc");
  both(api_.host_free, "cuMemFreeHost", "hipHostFree");
  both(api_.host_register, "cuMemHostRegister_v2", "hipHostRegister");
  both(api_.host_unregister, "cuMemHostUnregister", "hipHostUnregister");
  both(api_.memset8, "cuMemsetD8Async", "hipMemsetD8Async");
  both(api_.stream_create, "cuStreamCreate", "hipStreamCreateWithFlags");
  both(api_.stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy");
  both(api_.stream_synchronize, "cuStreamSynchronize", "hipStreamSynchronize");
  both(api_.stream_wait, "cuStreamWaitEvent", "hipStreamWaitEvent");
  both(api_.stream_begin_capture, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
  both(api_.stream_end_capture, "cuStreamEndCapture", "hipStreamEndCapture");
  both(api_.event_create, "cuEventCreate", "hipEventCreateWithFlags");
  both(api_.event_destroy, "cuEventDestroy_v2", "hipEventDestroy");
  both(api_.event_record, "cuEventRecord", "hipEventRecord");
  both(api_.event_query, "cuEventQuery", "hipEventQuery");
  both(api_.graph_instantiate, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags");
  both(api_.graph_launch, "cuGraphLaunch", "hipGraphLaunch");
  both(api_.graph_exec_destroy, "cuGraphExecDestroy", "hipGraphExecDestroy");
  both(api_.graph_destroy, "cuGraphDestroy", "hipGraphDestroy");
  both(api_.capture_info, "cuStreamGetCaptureInfo_v2", nullptr);
  both(api_.graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2", nullptr);
  if (cuda) {
    const auto find_new = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    find_new(api_.graph_create, "cuGraphCreate");
    find_new(api_.graph_condition, "cuGraphConditionalHandleCreate");
    find_new(api_.graph_add, "cuGraphAddNode_v2");
    find_new(api_.stream_capture_into, "cuStreamBeginCaptureToGraph");
  }
  both(api_.tile_map, "cuTensorMapEncodeTiled", nullptr);
  both(api_.module_load, "cuModuleLoadData", "hipModuleLoadData");
  both(api_.module_unload, "cuModuleUnload", "hipModuleUnload");
  both(api_.module_function, "cuModuleGetFunction", "hipModuleGetFunction");
  both(api_.function_set, "cuFuncSetAttribute", "hipFuncSetAttribute");
  both(api_.launch, "cuLaunchKernel", "hipModuleLaunchKernel");
  both(api_.launch_with, "cuLaunchKernelEx", nullptr);
  both(api_.memory_reserve, "cuMemAddressReserve", "hipMemAddressReserve");
  both(api_.memory_free, "cuMemAddressFree", "hipMemAddressFree");
  both(api_.memory_create, "cuMemCreate", "hipMemCreate");
  both(api_.memory_release, "cuMemRelease", "hipMemRelease");
  both(api_.memory_map, "cuMemMap", "hipMemMap");
  both(api_.memory_unmap, "cuMemUnmap", "hipMemUnmap");
  both(api_.memory_access, "cuMemSetAccess", "hipMemSetAccess");
  both(cuda_copy_, "cuMemcpyAsync", nullptr);
  both(cuda_retain_, "cuDevicePrimaryCtxRetain", nullptr);
  both(cuda_release_, "cuDevicePrimaryCtxRelease_v2", nullptr);
  both(cuda_set_current_, "cuCtxSetCurrent", nullptr);
  both(cuda_error_name_, "cuGetErrorName", nullptr);
  both(cuda_error_text_, "cuGetErrorString", nullptr);
  both(hip_copy_, nullptr, "hipMemcpyAsync");
  both(hip_set_device_, nullptr, "hipSetDevice");
  both(hip_properties_, nullptr, "hipGetDeviceProperties");
  both(hip_error_name_, nullptr, "hipGetErrorName");
  both(hip_error_text_, nullptr, "hipGetErrorString");
  return missing.empty() ? absl::OkStatus()
                         : FailedPrecondition("the driver has no {}: it is too old", missing);
}

void Driver::Emulate() {
  api_ = emu::Functions();
  version_ = "emulator";
  cuda_copy_ = emu::Copy;
  cuda_retain_ = emu::Retain;
  cuda_release_ = emu::Release;
  cuda_set_current_ = emu::SetCurrent;
  cuda_error_name_ = emu::ErrorName;
  cuda_error_text_ = emu::ErrorText;
}

std::string Driver::Describe(int result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuda_error_name_) {
    (void)cuda_error_name_(result, &name);
    (void)cuda_error_text_(result, &text);
  } else {
    name = hip_error_name_(result);
    text = hip_error_text_(result);
  }
  return fmt::format("{}: {}", name ? name : fmt::format("error {}", result),
                     text ? text : "unknown");
}

Status Driver::Check(int result, std::string_view what) const {
  if (result == kSuccess) return absl::OkStatus();
  const std::string why = fmt::format("{}: {}: {}", VendorName(vendor_), what, Describe(result));
  return result == kOutOfMemory ? ResourceExhausted("{}", why) : Internal("{}", why);
}

Result Driver::Copy(void* to, const void* from, size_t bytes, Stream stream) const {
  return cuda_copy_ ? cuda_copy_(to, from, bytes, stream)
                    : hip_copy_(to, from, bytes, kHipCopyByAddress, stream);
}

StatusOr<int> Driver::Get(Attribute attribute, int device) const {
  int value = 0;
  const int number = NumberOf(vendor_, attribute);
  OPWIRE_RETURN_IF_ERROR(Check(api_.device_attribute(&value, number, device),
                               fmt::format("attribute {} of a device", number)));
  return value;
}

StatusOr<std::string> Driver::Arch(int device) const {
  if (vendor_ == Vendor::kEmu) return fmt::format("emu{}", emu::WaveOf(device));
  if (vendor_ == Vendor::kCuda) {
    int major = 0, minor = 0;
    OPWIRE_RETURN_IF_ERROR(Check(api_.device_attribute(&major, kCudaCapabilityMajor, device),
                                 "a device's capability"));
    OPWIRE_RETURN_IF_ERROR(Check(api_.device_attribute(&minor, kCudaCapabilityMinor, device),
                                 "a device's capability"));
    // Starting with Hopper, the architecture's own instructions need a separate target.
    return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
  }
  // Its properties are a structure that has grown with each release. The architecture's name is a
  // string in it.
  std::vector<char> properties(64 << 10);
  OPWIRE_RETURN_IF_ERROR(
      Check(hip_properties_(properties.data(), device), "a device's properties"));
  constexpr std::string_view kPrefix = "gfx";
  const auto at = std::search(properties.begin(), properties.end(), kPrefix.begin(), kPrefix.end());
  if (at == properties.end())
    return FailedPrecondition("hip: a device without an architecture's name");
  const std::string name(&*at);
  return name.substr(0, name.find(':'));
}

Result Driver::Retain(int device, void** context) const {
  return cuda_retain_ ? cuda_retain_(context, device) : hip_set_device_(device);
}

void Driver::Release(int device) const {
  if (cuda_release_) (void)cuda_release_(device);
}

Result Driver::MakeCurrent(void* context, int device) const {
  return cuda_set_current_ ? cuda_set_current_(context) : hip_set_device_(device);
}

}  // namespace opwire::gpu

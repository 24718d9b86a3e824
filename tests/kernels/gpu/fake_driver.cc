// A CUDA driver without a GPU: device memory is the host's. Work is done synchronously, but events
// are ready late, and nothing works without a context. Environment variables FAKE_* set its
// failures; they are read at each call.
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNotReady = 600
};

int Setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

using Work = std::vector<std::function<void()>>;

struct Stream {
  bool captures = false;
  Work captured;
};
struct Event {
  int queries_left = 0;
};

thread_local bool current = false;
int devices() { return Setting("FAKE_DEVICES", 2); }

int Do(Stream* stream, std::function<void()> work) {
  if (!current) return kInvalidContext;
  if (!stream) return kInvalidValue;  // the default stream is never used
  if (stream->captures)
    stream->captured.push_back(std::move(work));
  else
    work();
  return kSuccess;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return Setting("FAKE_INIT", devices() > 0 ? kSuccess : kNoDevice); }
int cuDriverGetVersion(int* v) { return *v = Setting("FAKE_VERSION", 13000), kSuccess; }
int cuDeviceGetCount(int* n) { return *n = devices(), kSuccess; }
int cuDeviceGet(int* device, int ordinal) {
  return ordinal < 0 || ordinal >= devices() ? kInvalidDevice : (*device = ordinal, kSuccess);
}
int cuDeviceGetName(char* name, int bytes, int device) {
  std::strncpy(name, ("Fake GPU " + std::to_string(device)).c_str(), static_cast<size_t>(bytes));
  return kSuccess;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  for (int i = 0; i < 16; ++i)
    static_cast<uint8_t*>(uuid)[i] = static_cast<uint8_t>(0xa0 + i * (device + 1));
  return kSuccess;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t{1} << 30, kSuccess; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16:
      *value = 132;
      return kSuccess;
    case 20:
      *value = Setting("FAKE_MODE", 0);
      return kSuccess;
    case 38:
      *value = 50 << 20;
      return kSuccess;
    case 97:
      *value = 227 << 10;
      return kSuccess;
    case 75:
      *value = Setting("FAKE_MAJOR", 9);
      return kSuccess;
    case 76:
      *value = 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  return *context = &current, Setting("FAKE_RETAIN", kSuccess);
}
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuCtxSetCurrent(void* context) { return current = context != nullptr, kSuccess; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_FAKE", kSuccess; }
int cuGetErrorString(int, const char** text) { return *text = "as it was told to", kSuccess; }

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  return *free = 1 << 20, *total = size_t{1} << 30, kSuccess;
}
int cuMemAlloc_v2(void** memory, size_t bytes) {
  if (!current) return kInvalidContext;
  if (Setting("FAKE_FULL", 0)) return kOutOfMemory;
  return *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256), kSuccess;
}
int cuMemFree_v2(void* memory) { return std::free(memory), kSuccess; }
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) { return cuMemAlloc_v2(memory, bytes); }
int cuMemFreeHost(void* memory) { return std::free(memory), kSuccess; }
int cuMemHostRegister_v2(void*, size_t, unsigned) { return current ? kSuccess : kInvalidContext; }
int cuMemHostUnregister(void*) { return kSuccess; }

int cuStreamCreate(Stream** s, unsigned) {
  return current ? (*s = new Stream, kSuccess) : kInvalidContext;
}
int cuStreamDestroy_v2(Stream* s) { return delete s, kSuccess; }
int cuStreamSynchronize(Stream* s) { return s->captures ? kInvalidValue : kSuccess; }
int cuStreamWaitEvent(Stream*, Event*, unsigned) { return kSuccess; }
int cuMemcpyAsync(void* to, const void* from, size_t bytes, Stream* s) {
  return Do(s, [=] { std::memmove(to, from, bytes); });
}
int cuMemsetD8Async(void* to, unsigned char value, size_t bytes, Stream* s) {
  return Do(s, [=] { std::memset(to, value, bytes); });
}
int cuEventCreate(Event** e, unsigned) { return *e = new Event, kSuccess; }
int cuEventDestroy_v2(Event* e) { return delete e, kSuccess; }
int cuEventRecord(Event* e, Stream*) { return e->queries_left = 2, kSuccess; }
int cuEventQuery(Event* e) {
  return e->queries_left > 0 ? (--e->queries_left, kNotReady) : kSuccess;
}

int cuStreamBeginCapture_v2(Stream* s, int) {
  return s->captures ? kInvalidValue : (s->captures = true, kSuccess);
}
int cuStreamEndCapture(Stream* s, Work** graph) {
  if (!s->captures) return kInvalidValue;
  s->captures = false;
  *graph = new Work(std::move(s->captured));
  s->captured.clear();
  return kSuccess;
}
int cuGraphInstantiateWithFlags(Work** exec, Work* graph, unsigned long long) {
  return *exec = new Work(*graph), kSuccess;
}
int cuGraphLaunch(Work* exec, Stream*) {
  for (const auto& work : *exec) work();
  return kSuccess;
}
int cuGraphExecDestroy(Work* exec) { return delete exec, kSuccess; }
int cuGraphDestroy(Work* graph) { return delete graph, kSuccess; }

int cuStreamGetCaptureInfo_v2(Stream*, int*, unsigned long long*, void*, void*, size_t* count) {
  return *count = 0, kSuccess;
}
int cuGraphExecKernelNodeSetParams_v2(void*, void*, const void*) { return kInvalidValue; }
int cuTensorMapEncodeTiled(void*, int, unsigned, void*, const unsigned long long*,
                           const unsigned long long*, const unsigned*, const unsigned*, int, int,
                           int, int) {
  return kInvalidValue;
}
int cuModuleLoadData(void**, const void*) { return kInvalidValue; }
int cuModuleUnload(void*) { return kSuccess; }
int cuModuleGetFunction(void**, void*, const char*) { return kInvalidValue; }
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
// A function is two counts of its launches: those that begin after all earlier ones, and those that
// overlap.
int cuLaunchKernel(int* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, Stream*, void**, void**) {
  return function ? (++function[0], kSuccess) : kInvalidValue;
}
int cuLaunchKernelEx(const void*, int* function, void**, void**) {
  return function ? (++function[1], kSuccess) : kInvalidValue;
}

int cuMemAddressReserve(void** base, size_t bytes, size_t, void*, unsigned long long) {
  *base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *base == MAP_FAILED ? kOutOfMemory : kSuccess;
}
int cuMemAddressFree(void* base, size_t bytes) { return munmap(base, bytes), kSuccess; }
int cuMemCreate(unsigned long long* handle, size_t bytes, const void*, unsigned long long) {
  if (Setting("FAKE_FULL", 0)) return kOutOfMemory;
  return *handle = bytes, kSuccess;
}
int cuMemRelease(unsigned long long) { return kSuccess; }
int cuMemMap(void*, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  return bytes == handle ? kSuccess : kInvalidValue;
}
int cuMemUnmap(void* at, size_t bytes) {
  return mprotect(at, bytes, PROT_NONE), madvise(at, bytes, MADV_DONTNEED), kSuccess;
}
int cuMemSetAccess(void* at, size_t bytes, const void*, size_t) {
  return mprotect(at, bytes, PROT_READ | PROT_WRITE), kSuccess;
}

}  // extern "C"

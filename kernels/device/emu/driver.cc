// Devices, memory, streams, graphs, modules and launches without a GPU.
#include "kernels/device/emu/driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/emu/grid.h"
#include "kernels/device/emu/memory.h"
#include "kernels/device/loop_capture.h"

namespace opwire::gpu {

// The emulator's definitions of the driver's objects.
struct StreamOfDriver {
  bool captures = false;
  std::vector<std::function<Result()>> captured;
  Graph into = nullptr;  // graph that captured work is added to; null: a graph of its own
};
struct EventOfDriver {
  bool asked = false;  // it is done at the second query only, so that callers must wait
};
struct Condition {
  unsigned value, initially;
  bool set_at_launch;
};
struct GraphOfDriver {
  std::vector<std::function<Result()>> work;
  std::vector<std::unique_ptr<GraphOfDriver>> bodies;  // of its conditional nodes
  std::vector<Graph> handed_out;                       // the same, for their creators
  std::vector<std::unique_ptr<Condition>> conditions;
};
struct GraphNodeOfDriver {};  // never made: a node is the number of its work, counted from 1
struct GraphExecOfDriver {
  std::vector<std::function<Result()>> work;
};
struct FunctionOfDriver {
  const opw_emu::Unit* unit;
  const opw_emu::Kernel* kernel;
  unsigned static_shared;   // bytes that its variables are known to take
  unsigned dynamic_shared;  // that a launch may ask for
  void (*native)(const void* params) =
      nullptr;  // not null: a function of this program, in place of all these, for one thread,
  size_t native_bytes = 0;  // with one parameter of this size
};
struct ModuleOfDriver {
  void* library;
  const opw_emu::Unit* unit;
  unsigned static_shared;
  std::vector<std::unique_ptr<FunctionOfDriver>> functions;
};

namespace emu {
namespace {

struct Device {
  const char* name;
  int wave;
  unsigned shared_bytes;  // a block
};
constexpr Device kDevices[] = {{"Emulated GPU, waves of 32", 32, 227 << 10},
                               {"Emulated GPU, waves of 64", 64, 64 << 10}};
static_assert(kDevices[0].shared_bytes == kMaxShared);
constexpr int kDeviceCount = std::size(kDevices);
constexpr int64_t kMemoryBytes = int64_t{4} << 30;  // each
constexpr unsigned kSharedUnasked = 48 << 10;  // dynamic, of a function whose attribute is not set

thread_local std::string launch_failure;

// As on a GPU, the error of a kernel is reported by all later waits, until no context is held.
class Contexts {
 public:
  void Retain() {
    std::lock_guard lock(mutex_);
    ++retained_;
  }
  void Release() {
    std::lock_guard lock(mutex_);
    if (--retained_ == 0) failure_.clear();
  }
  void Lose(const std::string& failure) {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = failure;
  }
  Result Wait() {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) return kSuccess;
    launch_failure = failure_;
    return kLaunchFailed;
  }

 private:
  std::mutex mutex_;
  int retained_ = 0;
  std::string failure_;
} contexts;

bool Exists(int device) { return device >= 0 && device < kDeviceCount; }

Result Do(Stream stream, std::function<Result()> work) {
  if (!stream) return kInvalidValue;  // the default stream is not used
  if (!stream->captures) return work();
  stream->captured.push_back(std::move(work));
  return kSuccess;
}

Result Attribute(int* value, int attribute, int device) {
  if (!Exists(device)) return kInvalidDevice;
  switch (attribute) {  // of CUdevice_attribute
    case 16:
      return *value = 4, kSuccess;  // multiprocessors
    case 20:
      return *value = kDefaultMode, kSuccess;
    case 38:
      return *value = 1 << 20, kSuccess;  // bytes of L2
    case 97:
      return *value = static_cast<int>(kDevices[device].shared_bytes), kSuccess;
    default:
      return kInvalidValue;
  }
}

Result Name(char* name, int bytes, int device) {
  if (!Exists(device)) return kInvalidDevice;
  std::strncpy(name, kDevices[device].name, static_cast<size_t>(bytes));
  return kSuccess;
}

Result Uuid(void* sixteen_bytes, int device) {
  std::memcpy(sixteen_bytes, "opwire emulator", 16);
  static_cast<char*>(sixteen_bytes)[15] = static_cast<char>(device);
  return kSuccess;
}

Result AllocateMemory(void** memory, size_t bytes) {
  *memory = Memory::Get().Allocate(bytes);
  return *memory ? kSuccess : kOutOfMemory;
}

Result HostAllocate(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? kSuccess : kOutOfMemory;
}

Result Fill(void* to, unsigned char value, size_t bytes, Stream stream) {
  return Do(stream, [=] {
    const Memory::Access access(to, bytes);
    std::memset(to, value, bytes);
    return kSuccess;
  });
}

// ---- Streams, events and graphs

Result EndCapture(Stream stream, Graph* graph) {
  if (!stream->captures) return kInvalidValue;
  stream->captures = false;
  *graph = stream->into ? std::exchange(stream->into, nullptr) : new GraphOfDriver;
  std::ranges::move(stream->captured, std::back_inserter((*graph)->work));
  stream->captured.clear();
  return kSuccess;
}

Result MakeCondition(unsigned long long* handle, Graph graph, void*, unsigned initially,
                     unsigned flags) {
  graph->conditions.push_back(
      std::make_unique<Condition>(Condition{initially, initially, flags != 0}));
  *handle = reinterpret_cast<uintptr_t>(graph->conditions.back().get());
  return kSuccess;
}

Result DoAll(const std::vector<std::function<Result()>>& all) {
  for (const auto& work : all) {
    if (const Result r = work(); r != kSuccess) return r;
  }
  return kSuccess;
}

// Adds it after all work of the graph, as the caller requires: nothing runs in parallel.
Result AddConditional(GraphNode* node, Graph graph, const GraphNode*, const void*, size_t,
                      ConditionalNode* made) {
  graph->bodies.push_back(std::make_unique<GraphOfDriver>());
  graph->handed_out.push_back(graph->bodies.back().get());
  made->bodies = &graph->handed_out.back();
  auto* const condition = reinterpret_cast<Condition*>(static_cast<uintptr_t>(made->handle));
  graph->work.push_back([condition, body = graph->bodies.back().get(), loops = made->kind == 1] {
    if (condition->set_at_launch) condition->value = condition->initially;
    while (condition->value != 0) {
      if (const Result r = DoAll(body->work); r != kSuccess) return r;
      if (!loops) break;
    }
    return kSuccess;
  });
  *node = reinterpret_cast<GraphNode>(graph->work.size());
  return kSuccess;
}

Result CaptureInto(Stream stream, Graph graph, const GraphNode*, const void*, size_t, int) {
  if (stream->captures) return kInvalidValue;
  stream->captures = true;
  stream->into = graph;
  return kSuccess;
}

// As in gpu_loops.cc for CUDA.
void Iteration(const void* bytes) {
  struct {
    Condition* goes_on;
    LoopState* state;
    int64_t* number;
    const uint8_t* condition;
  } p;
  std::memcpy(&p, bytes, sizeof p);
  const int64_t done = ++p.state->done;
  p.state->holds = !p.condition || *p.condition != 0;
  if (p.number) *p.number = done;
  p.goes_on->value = p.state->holds != 0 && done < p.state->last;
}
void Choose(const void* bytes) {
  struct {
    Condition *then, *otherwise;
    const uint8_t* condition;
  } p;
  std::memcpy(&p, bytes, sizeof p);
  p.then->value = *p.condition != 0;
  if (p.otherwise) p.otherwise->value = *p.condition == 0;
}
void LoopKernels(Function* iteration, Function* branch) {
  static FunctionOfDriver of_iteration{nullptr, nullptr, 0, 0, Iteration, 32},
      of_branch{nullptr, nullptr, 0, 0, Choose, 24};
  *iteration = &of_iteration;
  *branch = &of_branch;
}

Result Replay(GraphExec exec, Stream stream) {
  return Do(stream, [exec] { return DoAll(exec->work); });
}

// ---- Code

// From the header: a linker writes the table of sections last.
size_t BytesOf(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
}

// Loads a temporary copy, which is deleted once it is loaded: libraries of one path would be one
// library.
void* LoadImage(const void* image, size_t bytes) {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = fmt::format("{}/opwire-emu-XXXXXX", folder && *folder ? folder : "/tmp");
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  const bool written = write(file, image, bytes) == static_cast<ssize_t>(bytes);
  close(file);
  void* const library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path.c_str());
  return library;
}

Result Load(Module* module, const void* image) {
  const size_t bytes = BytesOf(image);
  void* const library = bytes > 0 ? LoadImage(image, bytes) : nullptr;
  if (!library) return kInvalidImage;
  const auto* const unit = static_cast<const opw_emu::Unit*>(dlsym(library, "opw_emu_unit"));
  if (!unit) {
    dlclose(library);
    return kInvalidImage;
  }
  // A unit with several kernels has the variables of all; the share of one is not known.
  const bool several = dlsym(library, "opw_emu_kernels") != nullptr;
  *module = new ModuleOfDriver{
      library, unit, several ? 0 : static_cast<unsigned>(unit->shared_end - unit->shared), {}};
  return kSuccess;
}

Result Unload(Module module) {
  dlclose(module->library);
  delete module;
  return kSuccess;
}

Result FindKernel(Function* function, Module module, const char* name) {
  const auto* const kernel = static_cast<const opw_emu::Kernel*>(
      dlsym(module->library, fmt::format("opw_emu_kernel_{}", name).c_str()));
  if (!kernel) return kNotFound;
  module->functions.push_back(std::make_unique<FunctionOfDriver>(
      FunctionOfDriver{module->unit, kernel, module->static_shared, kSharedUnasked}));
  *function = module->functions.back().get();
  return kSuccess;
}

// Most shared memory of a block, on the device with such waves.
unsigned SharedOf(const opw_emu::Unit& unit) {
  for (const Device& d : kDevices) {
    if (d.wave == unit.wave) return d.shared_bytes;
  }
  return 0;
}

Result SetFunction(Function f, int attribute, int value) {
  if (attribute != kDynamicSharedBytes || value < 0) return kInvalidValue;
  if (static_cast<unsigned>(value) + f->static_shared > SharedOf(*f->unit)) return kInvalidValue;
  f->dynamic_shared = static_cast<unsigned>(value);
  return kSuccess;
}

// The last node is represented by the number of nodes.
Result CaptureInfo(Stream stream, int* status, unsigned long long*, Graph*, const GraphNode** last,
                   size_t* count) {
  static thread_local GraphNode node;
  node = reinterpret_cast<GraphNode>(stream->captured.size());
  *status = stream->captures;
  *last = &node;
  *count = stream->captures && !stream->captured.empty();
  return kSuccess;
}

Result LaunchKernel(Function f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,
                    void** params, void**) {
  if (f->native) {
    const auto* const from = static_cast<const char*>(params[0]);
    return Do(stream, [f, copy = std::vector<char>(from, from + f->native_bytes)] {
      const Memory::Access access;
      f->native(copy.data());
      return kSuccess;
    });
  }
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_x > INT32_MAX || grid_y == 0 || grid_y > 65535 || grid_z == 0 ||
      grid_z > 65535)
    return kInvalidValue;
  if (threads == 0 || threads > kMaxThreads || threads > static_cast<uint64_t>(f->kernel->threads))
    return kInvalidValue;
  if (shared_bytes > f->dynamic_shared || f->static_shared > kSharedUnasked) return kInvalidValue;
  if (shared_bytes + f->static_shared > SharedOf(*f->unit)) return kInvalidValue;
  std::vector<std::vector<char>> copies;
  for (int i = 0; i < f->kernel->count; ++i)
    copies.emplace_back(static_cast<char*>(params[i]),
                        static_cast<char*>(params[i]) + f->kernel->bytes[i]);
  return Do(stream, [=, copies = std::move(copies)]() mutable {
    std::vector<void*> arguments;
    for (std::vector<char>& copy : copies) arguments.push_back(copy.data());
    const Memory::Access access;
    launch_failure = Run({f->unit,
                          f->kernel,
                          {grid_x, grid_y, grid_z},
                          {block_x, block_y, block_z},
                          shared_bytes,
                          arguments.data()});
    if (launch_failure.empty()) return kSuccess;
    contexts.Lose(launch_failure);
    return kLaunchFailed;
  });
}

// Replaces the node by one captured with these parameters.
Result SetKernel(GraphExec exec, GraphNode node, const KernelNode* k) {
  StreamOfDriver stream{true, {}};
  const Result r =
      LaunchKernel(k->function, k->grid_x, k->grid_y, k->grid_z, k->block_x, k->block_y, k->block_z,
                   k->shared_bytes, &stream, k->params, nullptr);
  if (r == kSuccess)
    exec->work.at(reinterpret_cast<size_t>(node) - 1) = std::move(stream.captured[0]);
  return r;
}

}  // namespace

Api Functions() {
  Api api;
  api.init = [](unsigned) { return kSuccess; };
  api.driver_version = [](int* version) { return *version = 0, kSuccess; };
  api.device_count = [](int* count) { return *count = kDeviceCount, kSuccess; };
  api.device_get = [](int* device, int ordinal) {
    return *device = ordinal, Exists(ordinal) ? kSuccess : kInvalidDevice;
  };
  api.device_name = Name;
  api.device_uuid = Uuid;
  api.device_memory = [](size_t* bytes, int) { return *bytes = kMemoryBytes, kSuccess; };
  api.device_attribute = Attribute;
  api.mem_info = [](size_t* free, size_t* total) {
    *total = kMemoryBytes;
    *free = static_cast<size_t>(std::max<int64_t>(0, kMemoryBytes - Memory::Get().in_use()));
    return kSuccess;
  };
  api.mem_alloc = AllocateMemory;
  api.mem_free = [](void* memory) { return Memory::Get().Free(memory), kSuccess; };
  api.host_alloc = HostAllocate;
  api.host_free = [](void* memory) { return std::free(memory), kSuccess; };
  api.host_register = [](void*, size_t, unsigned) { return kSuccess; };
  api.host_unregister = [](void*) { return kSuccess; };
  api.memset8 = Fill;
  api.stream_create = [](Stream* stream, unsigned) {
    return *stream = new StreamOfDriver, kSuccess;
  };
  api.stream_destroy = [](Stream stream) { return delete stream, kSuccess; };
  api.stream_synchronize = [](Stream stream) {
    return stream->captures ? kInvalidValue : contexts.Wait();
  };
  api.stream_wait = [](Stream, Event, unsigned) { return kSuccess; };
  api.stream_begin_capture = [](Stream stream, int) {
    return stream->captures ? kInvalidValue : (stream->captures = true, kSuccess);
  };
  api.stream_end_capture = EndCapture;
  api.event_create = [](Event* event, unsigned) { return *event = new EventOfDriver, kSuccess; };
  api.event_destroy = [](Event event) { return delete event, kSuccess; };
  api.event_record = [](Event event, Stream) { return event->asked = false, kSuccess; };
  api.event_query = [](Event event) {
    return std::exchange(event->asked, true) ? kSuccess : kNotReady;
  };
  api.graph_instantiate = [](GraphExec* exec, Graph graph, unsigned long long) {
    return *exec = new GraphExecOfDriver{graph->work}, kSuccess;
  };
  api.graph_launch = Replay;
  api.graph_exec_destroy = [](GraphExec exec) { return delete exec, kSuccess; };
  api.graph_destroy = [](Graph graph) { return delete graph, kSuccess; };
  api.capture_info = CaptureInfo;
  api.graph_set_kernel = SetKernel;
  api.graph_create = [](Graph* graph, unsigned) { return *graph = new GraphOfDriver, kSuccess; };
  api.graph_condition = MakeCondition;
  api.graph_add = AddConditional;
  api.stream_capture_into = CaptureInto;
  api.loop_kernels = LoopKernels;
  api.module_load = Load;
  api.module_unload = Unload;
  api.module_function = FindKernel;
  api.function_set = SetFunction;
  api.launch = LaunchKernel;
  api.memory_reserve = [](void** base, size_t bytes, size_t, void*, unsigned long long) {
    *base = Memory::Get().Reserve(bytes);
    return *base ? kSuccess : kOutOfMemory;
  };
  api.memory_free = [](void* base, size_t bytes) {
    return Memory::Get().Unreserve(base, bytes), kSuccess;
  };
  api.memory_create = [](MemoryHandle* handle, size_t bytes, const MemoryProperties*,
                         unsigned long long) { return *handle = bytes, kSuccess; };
  api.memory_release = [](MemoryHandle) { return kSuccess; };
  api.memory_map = [](void*, size_t bytes, size_t, MemoryHandle handle, unsigned long long) {
    return bytes == handle ? kSuccess : kInvalidValue;
  };
  api.memory_unmap = [](void* at, size_t) { return Memory::Get().Decommit(at), kSuccess; };
  api.memory_access = [](void* at, size_t bytes, const MemoryAccess*, size_t) {
    return Memory::Get().Commit(at, bytes) ? kSuccess : kOutOfMemory;
  };
  return api;
}

Result Copy(void* to, const void* from, size_t bytes, Stream stream) {
  return Do(stream, [=] {
    const Memory::Access written(to, bytes), read(from, bytes);
    std::memmove(to, from, bytes);
    return kSuccess;
  });
}

Result Retain(void** context, int device) {
  contexts.Retain();
  *context = const_cast<Device*>(&kDevices[device]);
  return kSuccess;
}
Result Release(int) {
  contexts.Release();
  return kSuccess;
}
Result SetCurrent(void*) { return kSuccess; }
int WaveOf(int device) { return kDevices[device].wave; }

Result ErrorName(int result, const char** name) {
  switch (result) {
    case kInvalidValue:
      *name = "INVALID_VALUE";
      break;
    case kOutOfMemory:
      *name = "OUT_OF_MEMORY";
      break;
    case kInvalidDevice:
      *name = "INVALID_DEVICE";
      break;
    case kInvalidImage:
      *name = "INVALID_IMAGE";
      break;
    case kNotFound:
      *name = "NOT_FOUND";
      break;
    case kLaunchFailed:
      *name = "LAUNCH_FAILED";
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}

Result ErrorText(int result, const char** text) {
  switch (result) {
    case kInvalidValue:
      *text = "an argument is out of its range";
      break;
    case kOutOfMemory:
      *text = "the system gives no more memory";
      break;
    case kInvalidDevice:
      *text = "no such device";
      break;
    case kInvalidImage:
      *text = "not a unit of the emulator, or it does not load";
      break;
    case kNotFound:
      *text = "the unit has no kernel of that name";
      break;
    case kLaunchFailed:
      *text = launch_failure.c_str();
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}

}  // namespace emu
}  // namespace opwire::gpu

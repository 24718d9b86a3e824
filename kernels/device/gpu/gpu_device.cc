// The contract, implemented by the driver's functions. Streams never wait for the default one,
// events are reused, and graphs are captured per thread.
#include "kernels/device/gpu/gpu_device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <tuple>
#include <utility>

#include "ir/ops/names.h"

namespace opwire::gpu {
namespace {

std::string UuidText(const std::array<uint8_t, 16>& bytes) {
  std::string out = "GPU";
  for (size_t i = 0; i < bytes.size(); ++i)
    out += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       bytes[i]);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Facts about a device that are known without binding it.
struct Gpu {
  int device = 0;  // the driver's handle
  DeviceInfo info;
  std::string against;  // why it accepts no process; empty: it accepts one
};

StatusOr<Gpu> Look(const Driver& driver, int index) {
  const Api& api = driver.api();
  Gpu gpu;
  OPWIRE_RETURN_IF_ERROR(driver.Check(api.device_get(&gpu.device, index), "a device"));
  char name[256] = {};
  std::array<uint8_t, 16> uuid{};
  size_t bytes = 0;
  OPWIRE_RETURN_IF_ERROR(
      driver.Check(api.device_name(name, sizeof name - 1, gpu.device), "a device's name"));
  OPWIRE_RETURN_IF_ERROR(driver.Check(api.device_uuid(uuid.data(), gpu.device), "a device's UUID"));
  OPWIRE_RETURN_IF_ERROR(driver.Check(api.device_memory(&bytes, gpu.device), "a device's memory"));
  DeviceInfo& info = gpu.info;
  info.kind = VendorName(driver.vendor());
  info.index = index;
  info.name = name;
  info.uuid = UuidText(uuid);
  OPWIRE_ASSIGN_OR_RETURN(info.arch, driver.Arch(gpu.device));
  info.memory_bytes = static_cast<int64_t>(bytes);
  OPWIRE_ASSIGN_OR_RETURN(info.compute_units, driver.Get(Attribute::kMultiprocessors, gpu.device));
  OPWIRE_ASSIGN_OR_RETURN(const int l2, driver.Get(Attribute::kL2Bytes, gpu.device));
  if (driver.vendor() != Vendor::kEmu) {
    info.call_ns = 2000;
    info.bytes_per_ns = 2000;
    info.flops_per_ns = 20'000;
    info.narrow_flops_per_ns = 300'000;  // mostly of products, on tensor or matrix cores
  }
  info.dtypes = kAll;
  info.collective_backend = driver.vendor() == Vendor::kCuda  ? "nccl"
                            : driver.vendor() == Vendor::kHip ? "rccl"
                                                              : "";
  info.facts = {{"driver", driver.version()}, {"l2", fmt::format("{} MiB", l2 >> 20)}};
  OPWIRE_ASSIGN_OR_RETURN(const int mode, driver.Get(Attribute::kComputeMode, gpu.device));
  if (mode == kProhibited) gpu.against = "its compute mode prohibits processes";
  return gpu;
}

StatusOr<int> CountOf(const Driver& driver) {
  int count = 0;
  OPWIRE_RETURN_IF_ERROR(driver.Check(driver.api().device_count(&count), "counting devices"));
  return count;
}

// The one that `which` names, by index or UUID.
StatusOr<Gpu> Named(const Driver& driver, std::string_view which) {
  OPWIRE_ASSIGN_OR_RETURN(const int count, CountOf(driver));
  int index = -1;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), index);
  const bool number = error == std::errc() && end == which.data() + which.size();
  if (number && index >= 0 && index < count) return Look(driver, index);
  std::string there;
  for (int i = 0; i < count; ++i) {
    OPWIRE_ASSIGN_OR_RETURN(Gpu gpu, Look(driver, i));
    if (!number && Lower(gpu.info.uuid) == Lower(which)) return gpu;
    there += fmt::format("{}{} ({}, {})", i ? ", " : "", i, gpu.info.name, gpu.info.uuid);
  }
  return FailedPrecondition("no device '{}'; there are: {}", Clip(which), there);
}

std::atomic<uint64_t> devices_opened{0};

// The profiler's library, if one is loaded or can be: NVTX, or ROCm's. The emulator has none.
struct Ranges {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;

  static const Ranges& Of(Vendor vendor) {
    if (vendor == Vendor::kCuda) {
      static const Ranges cuda("libnvToolsExt.so.1", "nvtxRangePushA", "nvtxRangePop");
      return cuda;
    }
    if (vendor == Vendor::kEmu) {
      static const Ranges none;
      return none;
    }
    static const Ranges hip("libroctx64.so", "roctxRangePushA", "roctxRangePop");
    return hip;
  }

 private:
  Ranges() = default;
  Ranges(const char* library, const char* push_name, const char* pop_name) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    push = reinterpret_cast<int (*)(const char*)>(dlsym(handle, push_name));
    pop = reinterpret_cast<int (*)()>(dlsym(handle, pop_name));
    if (!pop) push = nullptr;
  }
};

}  // namespace

std::vector<DeviceProbe> ProbeGpus(Vendor vendor) {
  const std::string kind(VendorName(vendor));
  const auto none = [&](const Status& why) {
    return std::vector<DeviceProbe>{{kind + ":0", false, MessageOf(why)}};
  };
  const auto driver = Driver::Open(vendor);
  if (!driver.ok()) return none(driver.status());
  const auto count = CountOf(**driver);
  if (!count.ok()) return none(count.status());
  std::vector<DeviceProbe> out;
  for (int i = 0; i < *count; ++i) {
    const auto gpu = Look(**driver, i);
    const std::string against = gpu.ok() ? gpu->against : MessageOf(gpu.status());
    out.push_back({fmt::format("{}:{}", kind, i), against.empty(), against});
    if (!against.empty()) continue;
    const DeviceInfo& info = gpu->info;
    out.back().reason = fmt::format("{}, {:.1f} GiB, {}, {}", info.name,
                                    static_cast<double>(info.memory_bytes) / (1 << 30), info.arch,
                                    (*driver)->version());
  }
  return out;
}

StatusOr<std::unique_ptr<Device>> OpenGpu(Vendor vendor, std::string_view which) {
  OPWIRE_ASSIGN_OR_RETURN(const Driver* const driver, Driver::Open(vendor));
  OPWIRE_ASSIGN_OR_RETURN(Gpu gpu, Named(*driver, which));
  if (!gpu.against.empty())
    return FailedPrecondition("{} ({}): {}", gpu.info.name, gpu.info.uuid, gpu.against);
  void* context = nullptr;
  if (const Result r = driver->Retain(gpu.device, &context); r != kSuccess) {
    return FailedPrecondition("{} ({}): takes no process now, another may have it to itself: {}",
                              gpu.info.name, gpu.info.uuid, driver->Describe(r));
  }
  auto device = std::make_unique<GpuDevice>(*driver, gpu.device, context, std::move(gpu.info));
  OPWIRE_RETURN_IF_ERROR(device->Start());
  return device;
}

GpuDevice::GpuDevice(const Driver& driver, int device, void* context, DeviceInfo info)
    : id_(++devices_opened),
      driver_(driver),
      api_(driver.api()),
      device_(device),
      context_(context),
      info_(std::move(info)),
      overlaps_(api_.launch_with && CudaArchitecture(info_.arch) >= 90),
      runtime_(1, {}) {
  stats_.limit = info_.memory_bytes;
}

GpuDevice::~GpuDevice() {
  (void)Synchronize();  // and the following calls are of this device
  for (GraphId g = 0; g < graphs_.size(); ++g) DestroyGraph(g);
  for (const auto& [id, event] : pending_) (void)api_.event_destroy(event);
  for (const Event e : spare_) (void)api_.event_destroy(e);
  for (const Stream s : streams_) (void)api_.stream_destroy(s);
  if (reporter_.block) (void)api_.mem_free(reporter_.block);
  if (changed_) (void)api_.host_free(const_cast<unsigned*>(changed_));
  for (auto& [memory, r] : reserved_) {
    Shrink(memory, r, 0);
    (void)api_.memory_free(memory, static_cast<size_t>(r.bytes));
  }
  for (const auto& [memory, block] : blocks_)
    (void)(block.kind == MemoryKind::kDevice ? api_.mem_free(memory) : api_.host_free(memory));
  driver_.Release(device_);
}

Status GpuDevice::Start() {
  OPWIRE_RETURN_IF_ERROR(CreateStream().status());
  void *block = nullptr, *changed = nullptr;
  OPWIRE_RETURN_IF_ERROR(Check(api_.mem_alloc(&block, sizeof(opw::FlagBlock)), "allocating"));
  reporter_.block = static_cast<opw::FlagBlock*>(block);
  OPWIRE_RETURN_IF_ERROR(
      Check(api_.host_alloc(&changed, sizeof(unsigned), kHostPortable), "allocating"));
  changed_ = static_cast<unsigned*>(changed);
  return ClearFlags();
}

Status GpuDevice::ClearFlags() {
  const opw::FlagBlock clear{kNothingReported, 0, 0, const_cast<unsigned*>(changed_)};
  OPWIRE_RETURN_IF_ERROR(Copy(reporter_.block, &clear, sizeof clear, 0));
  OPWIRE_RETURN_IF_ERROR(Synchronize());
  *changed_ = 0;
  return absl::OkStatus();
}

// A kernel that reports also writes to the host's word, so in the common case nothing is copied.
RunFlags GpuDevice::TakeFlags() {
  RunFlags flags = runtime_.TakeFlags();
  if (*changed_ == 0) return flags;
  opw::FlagBlock block{};
  if (!Copy(&block, reporter_.block, sizeof block, 0).ok() || !Synchronize().ok() ||
      !ClearFlags().ok())
    return flags;
  flags.raised |= block.raised;
  if (block.first == kNothingReported) return flags;
  RunFlags reported;
  SetOutOfRange(block.first, reported);
  const auto when = [](const RunFlags& f) {
    return std::tuple(f.out_of_range_step, f.out_of_range_position, f.out_of_range_operand);
  };
  if (flags.out_of_range_operand < 0 || when(reported) < when(flags))
    SetOutOfRange(block.first, flags);
  return flags;
}

Status GpuDevice::Enter() const {
  static thread_local uint64_t current = 0;
  if (current == id_) return absl::OkStatus();
  OPWIRE_RETURN_IF_ERROR(Check(driver_.MakeCurrent(context_, device_), "binding a thread"));
  current = id_;
  return absl::OkStatus();
}

// ---- Work in order

StatusOr<Stream> GpuDevice::Find(StreamId stream) const {
  std::lock_guard lock(mutex_);
  if (stream >= streams_.size()) return InvalidArgument("no stream {}", stream);
  return streams_[stream];
}

Status GpuDevice::Copy(void* to, const void* from, int64_t bytes, StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  const void* const copied[] = {to, from, reinterpret_cast<const void*>(bytes)};
  if (bytes == 0 || (stream == 0 && !Note(nullptr, {}, copied, sizeof copied)))
    return absl::OkStatus();
  return Check(driver_.Copy(to, from, static_cast<size_t>(bytes), s), "copying");
}

Status GpuDevice::Zero(void* memory, int64_t bytes, StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  const void* const zeroed[] = {memory, reinterpret_cast<const void*>(bytes)};
  if (bytes == 0 || (stream == 0 && !Note(nullptr, {}, zeroed, sizeof zeroed)))
    return absl::OkStatus();
  return Check(api_.memset8(memory, 0, static_cast<size_t>(bytes), s), "zeroing");
}

StatusOr<StreamId> GpuDevice::CreateStream() {
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::lock_guard lock(mutex_);
  Stream s = nullptr;
  OPWIRE_RETURN_IF_ERROR(Check(api_.stream_create(&s, kStreamNonBlocking), "making a stream"));
  streams_.push_back(s);
  return static_cast<StreamId>(streams_.size() - 1);
}

StatusOr<Event> GpuDevice::TakeEvent() {
  // Of the events that have not been queried, the oldest are done first.
  while (spare_.empty() && !pending_.empty() &&
         api_.event_query(pending_.begin()->second) == kSuccess) {
    spare_.push_back(pending_.begin()->second);
    pending_.erase(pending_.begin());
  }
  Event event = nullptr;
  if (spare_.empty()) {
    OPWIRE_RETURN_IF_ERROR(Check(api_.event_create(&event, kEventNoTiming), "making an event"));
    return event;
  }
  event = spare_.back();
  spare_.pop_back();
  return event;
}

StatusOr<EventId> GpuDevice::Record(StreamId stream) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  std::lock_guard lock(mutex_);
  OPWIRE_ASSIGN_OR_RETURN(const Event event, TakeEvent());
  if (const Result r = api_.event_record(event, s); r != kSuccess) {
    spare_.push_back(event);
    return Check(r, "recording an event");
  }
  pending_.emplace(++last_event_, event);
  return last_event_;
}

Status GpuDevice::Wait(StreamId stream, EventId event) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  OPWIRE_ASSIGN_OR_RETURN(const Stream s, Find(stream));
  std::lock_guard lock(mutex_);
  if (event > last_event_) return InvalidArgument("no event {}", event);
  const auto it = pending_.find(event);
  return it == pending_.end() ? absl::OkStatus()
                              : Check(api_.stream_wait(s, it->second, 0), "waiting for an event");
}

bool GpuDevice::Done(EventId event) {
  if (!Enter().ok()) return false;
  std::lock_guard lock(mutex_);
  const auto it = pending_.find(event);
  if (it == pending_.end()) return event <= last_event_;
  if (api_.event_query(it->second) != kSuccess) return false;
  spare_.push_back(it->second);
  pending_.erase(it);
  return true;
}

Status GpuDevice::Synchronize() {
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::vector<Stream> streams;
  {
    std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const Stream s : streams)
    OPWIRE_RETURN_IF_ERROR(Check(api_.stream_synchronize(s), "synchronising"));
  return absl::OkStatus();
}

// ---- Kernels

StatusOr<Module> GpuDevice::LoadModule(const std::string& image) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  Module module = nullptr;
  OPWIRE_RETURN_IF_ERROR(Check(api_.module_load(&module, image.data()), "loading code"));
  return module;
}

void GpuDevice::UnloadModule(Module module) {
  if (Enter().ok()) (void)api_.module_unload(module);
}

StatusOr<Function> GpuDevice::FindFunction(Module module, const char* name) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  Function f = nullptr;
  if (const Result r = api_.module_function(&f, module, name); r != kSuccess)
    return NotFound("a kernel {}: {}", name, driver_.Describe(r));
  std::lock_guard lock(mutex_);
  shared_.erase(f);  // of a function that had this handle before
  return f;
}

void GpuDevice::WhenAwaited(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  awaited_.push_back(std::move(work));
}

void GpuDevice::AwaitKernels() {
  std::vector<std::function<void()>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(awaited_);
  }
  for (const std::function<void()>& work : all) work();
}

Status GpuDevice::AllowShared(Function f, int bytes) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::lock_guard lock(mutex_);
  int& allowed = shared_[f];
  if (bytes <= allowed) return absl::OkStatus();  // launches with more may be recorded already
  OPWIRE_RETURN_IF_ERROR(Check(api_.function_set(f, kDynamicSharedBytes, bytes),
                               fmt::format("{} bytes of shared memory a block", bytes)));
  allowed = bytes;
  return absl::OkStatus();
}

StatusOr<opw::TileMap> GpuDevice::MapTiles(const Tiled& matrix, void* address) const {
  if (!api_.tile_map) return Unimplemented("{}: no copies of tiles", info_.kind);
  enum : int { kU8 = 0, kU16 = 1 };  // CUtensorMapDataType
  enum : int { kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kFillZeros = 0 };
  const auto bytes = static_cast<unsigned long long>(matrix.element_bytes);
  const unsigned long long extents[] = {static_cast<unsigned long long>(matrix.columns),
                                        static_cast<unsigned long long>(matrix.rows)};
  const unsigned long long strides[] = {static_cast<unsigned long long>(matrix.row_stride) * bytes};
  const unsigned tile[] = {static_cast<unsigned>(128 / matrix.element_bytes),
                           static_cast<unsigned>(matrix.tile_rows)},
                 steps[] = {1, 1};
  opw::TileMap map;
  OPWIRE_RETURN_IF_ERROR(Check(
      api_.tile_map(&map, matrix.element_bytes == 1 ? kU8 : kU16, 2, address, extents, strides,
                    tile, steps, kNoInterleave, kSwizzle128, kPromote256, kFillZeros),
      fmt::format("mapping tiles of {} x {} elements, {} from row to row", matrix.rows,
                  matrix.columns, matrix.row_stride)));
  return map;
}

Status GpuDevice::Launch(Function f, const LaunchShape& shape, const void* params, size_t bytes) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  if (!Note(f, shape, params, bytes)) return absl::OkStatus();
  void* arguments[] = {const_cast<void*>(params)};
  const bool captures = recording_ == Recording::kCapturing || loops_.captures();
  const bool overlaps =
      shape.overlaps && overlaps_ && (!shape.reads_early || (captures && settled_));
  settled_ = settled_ || !overlaps;
  Result r;
  if (overlaps) {
    const LaunchAttribute early;
    const LaunchConfig config{shape.grid_x,
                              shape.grid_y,
                              shape.grid_z,
                              shape.threads,
                              1,
                              1,
                              shape.shared_bytes,
                              streams_[0],
                              &early,
                              1};
    r = api_.launch_with(&config, f, arguments, nullptr);
  } else {
    r = api_.launch(f, shape.grid_x, shape.grid_y, shape.grid_z, shape.threads, 1, 1,
                    shape.shared_bytes, streams_[0], arguments, nullptr);
  }
  if (r != kSuccess) return Check(r, "launching a kernel");
  NameLast();
  return absl::OkStatus();
}

// ---- Profiling

void GpuDevice::PushRange(std::string_view name) {
  const Ranges& ranges = Ranges::Of(driver_.vendor());
  if (ranges.push) ranges.push(std::string(name).c_str());
}

void GpuDevice::PopRange() {
  const Ranges& ranges = Ranges::Of(driver_.vendor());
  if (ranges.push) ranges.pop();
}

}  // namespace opwire::gpu

// Memory of a GPU: blocks, and address space that is backed by chunks.
#include <algorithm>

#include "kernels/device/gpu/gpu_device.h"

namespace opwire::gpu {
namespace {

// Physical memory for reserved addresses is a multiple of this, and so of any driver's granularity.
constexpr int64_t kChunk = int64_t{32} << 20;

}  // namespace

Status GpuDevice::OutOfMemory(int64_t bytes, MemoryKind kind, std::string_view why) const {
  size_t free = 0, total = 0;
  (void)api_.mem_info(&free, &total);
  return ResourceExhausted("asked for {} bytes of {} memory; in use here {}, free {} of {}: {}",
                           bytes, kind == MemoryKind::kDevice ? "device" : "pinned host",
                           stats_.in_use, free, total, why);
}

StatusOr<void*> GpuDevice::Allocate(int64_t bytes, MemoryKind kind) {
  if (bytes < 0) return InvalidArgument("expected a size of 0 bytes at least, got {}", bytes);
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::lock_guard lock(mutex_);
  const bool device = kind == MemoryKind::kDevice;
  if (device && bytes > stats_.limit - stats_.in_use)
    return OutOfMemory(bytes, kind, "more than there is");
  void* memory = nullptr;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const Result r =
      device ? api_.mem_alloc(&memory, size) : api_.host_alloc(&memory, size, kHostPortable);
  if (r == kOutOfMemory) return OutOfMemory(bytes, kind, driver_.Describe(r));
  OPWIRE_RETURN_IF_ERROR(Check(r, "allocating"));
  blocks_.emplace(memory, Block{bytes, kind});
  if (device) {
    stats_.in_use += bytes;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
  }
  return memory;
}

void GpuDevice::Free(void* memory) {
  if (!memory || !Enter().ok()) return;
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(memory);
  if (it == blocks_.end()) return;
  const Block block = it->second;
  blocks_.erase(it);
  if (block.kind == MemoryKind::kPinnedHost) {
    (void)api_.host_free(memory);
    return;
  }
  (void)api_.mem_free(memory);
  stats_.in_use -= block.bytes;
}

MemoryStats GpuDevice::memory_stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void GpuDevice::ResetPeak() {
  std::lock_guard lock(mutex_);
  stats_.peak = stats_.in_use;
}

StatusOr<void*> GpuDevice::Reserve(int64_t bytes) {
  if (bytes <= 0) return InvalidArgument("reserve: expected a size of at least 1, got {}", bytes);
  OPWIRE_RETURN_IF_ERROR(Enter());
  const int64_t rounded = (bytes + kChunk - 1) / kChunk * kChunk;
  void* base = nullptr;
  OPWIRE_RETURN_IF_ERROR(
      Check(api_.memory_reserve(&base, static_cast<size_t>(rounded), 0, nullptr, 0),
            "reserving address space"));
  std::lock_guard lock(mutex_);
  reserved_.emplace(base, Reserved{rounded, 0, {}});
  return base;
}

Status GpuDevice::Grow(void* base, Reserved& r, int64_t bytes) {
  const int64_t more = (bytes - r.backed + kChunk - 1) / kChunk * kChunk;
  if (more > stats_.limit - stats_.in_use)
    return OutOfMemory(more, MemoryKind::kDevice, "more than there is");
  MemoryProperties properties;
  properties.location.id = device_;
  Chunk chunk{more, 0};
  const Result made = api_.memory_create(&chunk.handle, static_cast<size_t>(more), &properties, 0);
  if (made == kOutOfMemory) return OutOfMemory(more, MemoryKind::kDevice, driver_.Describe(made));
  OPWIRE_RETURN_IF_ERROR(Check(made, "allocating"));
  void* const at = static_cast<char*>(base) + r.backed;
  Result mapped = api_.memory_map(at, static_cast<size_t>(more), 0, chunk.handle, 0);
  if (mapped == kSuccess) {
    MemoryAccess access;
    access.location.id = device_;
    mapped = api_.memory_access(at, static_cast<size_t>(more), &access, 1);
    if (mapped != kSuccess) (void)api_.memory_unmap(at, static_cast<size_t>(more));
  }
  if (mapped != kSuccess) {
    (void)api_.memory_release(chunk.handle);
    return Check(mapped, "mapping memory");
  }
  r.chunks.push_back(chunk);
  r.backed += more;
  stats_.in_use += more;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return absl::OkStatus();
}

void GpuDevice::Shrink(void* base, Reserved& r, int64_t bytes) {
  while (!r.chunks.empty() && r.backed - r.chunks.back().bytes >= bytes) {
    const Chunk chunk = r.chunks.back();
    r.chunks.pop_back();
    r.backed -= chunk.bytes;
    stats_.in_use -= chunk.bytes;
    (void)api_.memory_unmap(static_cast<char*>(base) + r.backed, static_cast<size_t>(chunk.bytes));
    (void)api_.memory_release(chunk.handle);
  }
}

Status GpuDevice::Resize(void* reserved, int64_t bytes) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  std::unique_lock lock(mutex_);
  auto it = reserved_.find(reserved);
  if (it == reserved_.end() || bytes < 0 || bytes > it->second.bytes)
    return InvalidArgument("resize: {} bytes at {}, which are not reserved", bytes, reserved);
  if (bytes > it->second.backed) return Grow(reserved, it->second, bytes);
  if (it->second.chunks.empty() || it->second.backed - it->second.chunks.back().bytes < bytes)
    return absl::OkStatus();
  lock.unlock();
  OPWIRE_RETURN_IF_ERROR(Synchronize());
  lock.lock();
  it = reserved_.find(reserved);
  if (it != reserved_.end()) Shrink(reserved, it->second, bytes);
  return absl::OkStatus();
}

void GpuDevice::Unreserve(void* reserved) {
  if (!Resize(reserved, 0).ok()) return;
  std::lock_guard lock(mutex_);
  const auto it = reserved_.find(reserved);
  (void)api_.memory_free(reserved, static_cast<size_t>(it->second.bytes));
  reserved_.erase(it);
}

Status GpuDevice::RegisterHost(void* memory, int64_t bytes) {
  OPWIRE_RETURN_IF_ERROR(Enter());
  return Check(api_.host_register(memory, static_cast<size_t>(bytes), kHostPortable),
               "registering host memory");
}

void GpuDevice::UnregisterHost(void* memory) {
  if (Enter().ok()) (void)api_.host_unregister(memory);
}

}  // namespace opwire::gpu

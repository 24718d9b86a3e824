// Memory with a limit, copies, and names for streams and events.
#include "kernels/device/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace opwire {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

DeviceInfo OnHost(DeviceInfo info) {
  info.host_memory = true;
  return info;
}

}  // namespace

HostDevice::HostDevice(DeviceInfo info, std::vector<int> pinned)
    : info_(OnHost(std::move(info))),
      runtime_(std::max(1, info_.compute_units), std::move(pinned)) {
  stats_.limit = info_.memory_bytes;
}

HostDevice::~HostDevice() {
  for (const auto& [memory, bytes] : blocks_) std::free(memory);
  for (const auto& [memory, r] : reserved_) munmap(memory, static_cast<size_t>(r.bytes));
}

Status HostDevice::Take(int64_t bytes) {
  const int64_t free = stats_.limit - stats_.in_use;
  if (bytes > free) {
    return ResourceExhausted("allocate: {} bytes asked on {}, {} free of {}", bytes, info_.kind,
                             free, stats_.limit);
  }
  stats_.in_use += bytes;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return absl::OkStatus();
}

StatusOr<void*> HostDevice::Allocate(int64_t bytes, MemoryKind) {
  if (bytes < 0) return InvalidArgument("allocate: expected a size of at least 0, got {}", bytes);
  const std::lock_guard lock(mutex_);
  OPWIRE_RETURN_IF_ERROR(Take(bytes));
  // Large blocks on huge pages: a tenth of the page faults' cost, and fewer misses of the address
  // cache.
  const int64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) {
    stats_.in_use -= bytes;
    return ResourceExhausted("allocate: the system refused {} bytes", bytes);
  }
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  blocks_.emplace(memory, bytes);
  return memory;
}

void HostDevice::Free(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(memory);
  assert(block != blocks_.end());
  if (block == blocks_.end()) return;  // leaked rather than freed twice
  stats_.in_use -= block->second;
  blocks_.erase(block);
  std::free(memory);
}

MemoryStats HostDevice::memory_stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void HostDevice::ResetPeak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.in_use;
}

StatusOr<void*> HostDevice::Reserve(int64_t bytes) {
  if (bytes <= 0) return InvalidArgument("reserve: expected a size of at least 1, got {}", bytes);
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return ResourceExhausted("reserve: no {} bytes of address space", bytes);
  const std::lock_guard lock(mutex_);
  reserved_.emplace(memory, Reserved{bytes, 0});
  return memory;
}

Status HostDevice::Resize(void* reserved, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto it = reserved_.find(reserved);
  if (it == reserved_.end() || bytes < 0 || bytes > it->second.bytes)
    return InvalidArgument("resize: {} bytes at {}, which are not reserved", bytes, reserved);
  Reserved& r = it->second;
  if (bytes > r.backed) {
    OPWIRE_RETURN_IF_ERROR(Take(bytes - r.backed));
    // Without huge pages the TLB and the prefetcher handle each page of 4 KiB separately: reading
    // takes up to twice as long.
    const auto begin = reinterpret_cast<uintptr_t>(reserved),
               huge = static_cast<uintptr_t>(kHugePage), from = (begin + huge - 1) / huge * huge,
               to = (begin + bytes) / huge * huge;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  } else {
    const int64_t from = (bytes + kPage - 1) / kPage * kPage;
    if (from < r.backed)
      madvise(static_cast<char*>(reserved) + from, static_cast<size_t>(r.backed - from),
              MADV_DONTNEED);
    stats_.in_use -= r.backed - bytes;
  }
  r.backed = bytes;
  return absl::OkStatus();
}

void HostDevice::Unreserve(void* reserved) {
  const std::lock_guard lock(mutex_);
  const auto it = reserved_.find(reserved);
  if (it == reserved_.end()) return;
  munmap(reserved, static_cast<size_t>(it->second.bytes));
  stats_.in_use -= it->second.backed;
  reserved_.erase(it);
}

Status HostDevice::RegisterHost(void* memory, int64_t bytes) {
  if (memory == nullptr || bytes < 0)
    return InvalidArgument("register: expected memory, got {} bytes at {}", bytes, memory);
  return absl::OkStatus();
}

void HostDevice::UnregisterHost(void*) {}

Status HostDevice::Copy(void* to, const void* from, int64_t bytes, StreamId) {
  if (bytes < 0) return InvalidArgument("copy: expected a size of at least 0, got {}", bytes);
  if (bytes > 0) std::memmove(to, from, bytes);
  return absl::OkStatus();
}

Status HostDevice::Zero(void* memory, int64_t bytes, StreamId) {
  if (bytes < 0) return InvalidArgument("zero: expected a size of at least 0, got {}", bytes);
  if (bytes > 0) std::memset(memory, 0, bytes);
  return absl::OkStatus();
}

StatusOr<EventId> HostDevice::Record(StreamId stream) {
  if (stream > streams_) return InvalidArgument("record: stream {} does not exist", stream);
  return ++events_;
}

Status HostDevice::Wait(StreamId stream, EventId event) {
  if (stream > streams_ || event > events_)
    return InvalidArgument("wait: stream {} or event {} does not exist", stream, event);
  return absl::OkStatus();
}

Status HostDevice::NoGraphs() const {
  return Unimplemented("device {} captures no graphs", info_.kind);
}
Status HostDevice::BeginCapture(StreamId) { return NoGraphs(); }
StatusOr<GraphId> HostDevice::EndCapture(StreamId) { return NoGraphs(); }
Status HostDevice::Replay(GraphId, StreamId) { return NoGraphs(); }
Status HostDevice::BeginUpdate(GraphId) { return NoGraphs(); }

}  // namespace opwire

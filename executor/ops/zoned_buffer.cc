// One allocation a buffer, filled with the pattern.
#include "executor/ops/zoned_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace opwire::executor {
namespace {

constexpr int64_t kZone = 256;  // and what allocations are aligned to
constexpr uint8_t kZonePattern = 0xa5;

}  // namespace

StatusOr<ZonedBuffer> ZonedBuffer::Make(Device& device, std::string name, int64_t bytes,
                                        int64_t alignment, Guard guard) {
  ZonedBuffer b(device, std::move(name));
  const bool watched = device.info().kind == "emu";
  b.bytes_ = bytes;
  if (guard == Guard::kBefore) {
    b.begin_ = kZone;
    b.total_ = kZone + bytes + kZone;
  } else {
    const int64_t behind = watched ? 0 : kZone;
    b.total_ = (kZone + alignment + bytes + behind + kZone - 1) / kZone * kZone;
    b.begin_ = (b.total_ - behind - bytes) / alignment * alignment;
    if (!watched && b.begin_ % kZone == 0) b.begin_ -= alignment;
  }
  OPWIRE_ASSIGN_OR_RETURN(void* const memory, device.Allocate(b.total_, MemoryKind::kDevice));
  b.memory_ = static_cast<uint8_t*>(memory);
  OPWIRE_RETURN_IF_ERROR(b.Fill(std::vector<uint8_t>(static_cast<size_t>(bytes), kZonePattern)));
  return b;
}

ZonedBuffer::~ZonedBuffer() {
  if (memory_) device_->Free(memory_);
}

ZonedBuffer::ZonedBuffer(ZonedBuffer&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      memory_(std::exchange(other.memory_, nullptr)),
      begin_(other.begin_),
      bytes_(other.bytes_),
      total_(other.total_) {}

Status ZonedBuffer::Fill(const std::vector<uint8_t>& content) {
  std::vector<uint8_t> all(static_cast<size_t>(total_), kZonePattern);
  std::ranges::copy(content, all.begin() + begin_);
  OPWIRE_RETURN_IF_ERROR(device_->Copy(memory_, all.data(), total_, 0));
  return device_->Synchronize();  // `all` ends here
}

StatusOr<std::vector<uint8_t>> ZonedBuffer::Read() const {
  std::vector<uint8_t> all(static_cast<size_t>(total_));
  OPWIRE_RETURN_IF_ERROR(device_->Copy(all.data(), memory_, total_, 0));
  OPWIRE_RETURN_IF_ERROR(device_->Synchronize());
  const auto written = [](uint8_t v) { return v != kZonePattern; };
  if (std::any_of(all.begin(), all.begin() + begin_, written))
    return FailedPrecondition("it wrote before the beginning of {}", name_);
  if (std::any_of(all.begin() + begin_ + bytes_, all.end(), written))
    return FailedPrecondition("it wrote behind the end of {}", name_);
  return std::vector<uint8_t>(all.begin() + begin_, all.begin() + begin_ + bytes_);
}

}  // namespace opwire::executor

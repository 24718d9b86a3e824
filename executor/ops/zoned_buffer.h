// Device memory between zones of a pattern, which show writes outside the buffer.
#ifndef OPWIRE_EXECUTOR_OPS_ZONED_BUFFER_H_
#define OPWIRE_EXECUTOR_OPS_ZONED_BUFFER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "executor/ops/guarded.h"
#include "ir/base/status.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class ZonedBuffer {
 public:
  // `name` is written in messages: "operand x (f32[3, 17])". kBefore: the bytes begin where the
  // memory has its best alignment. kBehind: they are aligned to `alignment` only, a power of two.
  // On an emulated GPU, which detects accesses beyond the end of an allocation, they then end with
  // it. The device outlives this object. RESOURCE_EXHAUSTED.
  static StatusOr<ZonedBuffer> Make(Device& device, std::string name, int64_t bytes,
                                    int64_t alignment, Guard guard);
  ~ZonedBuffer();
  ZonedBuffer(ZonedBuffer&& other) noexcept;
  ZonedBuffer& operator=(ZonedBuffer&& other) = delete;

  void* data() const { return memory_ + begin_; }
  Status Fill(const std::vector<uint8_t>& content);
  // Returns the bytes after all work on the device. FAILED_PRECONDITION if the memory around them
  // was written.
  StatusOr<std::vector<uint8_t>> Read() const;
  const std::string& name() const { return name_; }

 private:
  ZonedBuffer(Device& device, std::string name) : device_(&device), name_(std::move(name)) {}

  Device* device_;
  std::string name_;
  uint8_t* memory_ = nullptr;
  int64_t begin_ = 0, bytes_ = 0, total_ = 0;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_ZONED_BUFFER_H_

// Memory between pages that nobody may touch, and what to say when a kernel does. For processes
// that try kernels.
#ifndef OPWIRE_EXECUTOR_OPS_GUARDED_H_
#define OPWIRE_EXECUTOR_OPS_GUARDED_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace opwire::ops {

// Whether the bytes touch the page before them or the one behind them: what is read or written one
// element too early or too late is noticed in one of the two.
enum class Guard : uint8_t { kBefore, kBehind };

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  // `name` as it stands in messages: "operand x (f32[3, 17])". The bytes begin on a multiple of
  // `alignment`, a power of two; what lies between them and the far page is filled with a pattern.
  // RESOURCE_EXHAUSTED.
  static StatusOr<GuardedBuffer> Make(std::string name, int64_t bytes, int64_t alignment,
                                      Guard guard);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;

  std::span<uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  void* data() const { return data_; }
  // From here on writing it is a fault.
  void Seal();
  // What was written between the bytes and the far page ("wrote behind the end of ..."); empty:
  // nothing.
  std::string Overrun() const;

 private:
  friend class FaultReporter;

  std::string name_;
  uint8_t* map_ = nullptr;
  int64_t map_bytes_ = 0;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// While it lives, a fault of this process ends it with code 1 after writing `{"failure": "WHAT:
// HOW"}` to a descriptor, where HOW names the buffer that was left, or the signal.
class FaultReporter {
 public:
  explicit FaultReporter(int descriptor);
  ~FaultReporter();

  // What runs as long as this lives, and the buffers that it was given.
  class Watched {
   public:
    Watched(FaultReporter& reporter, const std::string& what,
            const std::vector<const GuardedBuffer*>& buffers);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
  };
};

}  // namespace opwire::ops

#endif  // OPWIRE_EXECUTOR_OPS_GUARDED_H_

// Memory between guard pages, and a report when a kernel touches one. For processes that try
// kernels.
#ifndef OPWIRE_EXECUTOR_OPS_GUARDED_H_
#define OPWIRE_EXECUTOR_OPS_GUARDED_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace opwire::executor {

// Whether the bytes touch the page before them or the page after them. One of the two shows an
// access that is one element too early or too late.
enum class Guard : uint8_t { kBefore, kBehind };

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  // `name` is written in messages: "operand x (f32[3, 17])". The bytes begin on a multiple of
  // `alignment`, a power of two. A pattern fills the space between them and the far page.
  // RESOURCE_EXHAUSTED.
  static StatusOr<GuardedBuffer> Make(std::string name, int64_t bytes, int64_t alignment,
                                      Guard guard);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;

  std::span<uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  void* data() const { return data_; }
  // Makes the memory read-only: a later write is a fault.
  void Seal();
  // Describes a write between the bytes and the far page ("wrote behind the end of ..."). Empty if
  // there was none.
  std::string Overrun() const;

 private:
  friend class FaultReporter;

  std::string name_;
  uint8_t* map_ = nullptr;
  int64_t map_bytes_ = 0;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// While it lives, a fault of this process ends it with code 1. First it writes `{"failure": "WHAT:
// HOW"}` to a descriptor. HOW names the signal, or the buffer outside which the access was.
class FaultReporter {
 public:
  explicit FaultReporter(int descriptor);
  ~FaultReporter();

  // While it lives, faults are reported as of `what`, which was given `buffers`.
  class Watched {
   public:
    Watched(FaultReporter& reporter, const std::string& what,
            const std::vector<const GuardedBuffer*>& buffers);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
  };
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_GUARDED_H_

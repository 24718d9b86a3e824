// The memory that a session shares with its clients on the same host: a sealed memfd that both map.
// On a device that reaches the host's memory the session's tensors lie in it and move in place; on
// others it is what they are copied through.
//
// Pages are backed when touched and given back by Trim. Sealed against shrinking and growing, so no
// client can pull memory from under the executor; what it writes there can change at any time, and
// kernels load each value that matters once.
#ifndef OPWIRE_EXECUTOR_STORE_SEGMENT_H_
#define OPWIRE_EXECUTOR_STORE_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/blocks.h"
#include "ir/base/status.h"
#include "kernels/device/device.h"

namespace opwire {

class Segment {
 public:
  // Reserves address space only. What is copied from or to `device` is registered there, so that it
  // copies at full speed; null: there is none. UNAVAILABLE when the system refuses.
  static StatusOr<std::unique_ptr<Segment>> Create(int64_t capacity, Device* device = nullptr);
  ~Segment();
  Segment(const Segment&) = delete;

  // As Blocks; contents are undefined.
  StatusOr<int64_t> Allocate(int64_t bytes);
  void Free(int64_t offset, int64_t bytes) { blocks_.Free(offset, bytes); }
  // Gives the pages of free blocks back to the system.
  void Trim();

  uint8_t* base() const { return base_; }
  int64_t capacity() const { return blocks_.capacity(); }
  int fd() const { return fd_; }

  // How many of the bytes from `offset` on one copy may take, which is to follow: memory is
  // registered in pieces, and no copy may cross from one into the next. A piece is registered when
  // it is used again, as that takes longer than a copy without.
  int64_t BeginCopy(int64_t offset, int64_t bytes);

 private:
  struct Piece {
    bool used = false, registered = false;
  };
  explicit Segment(int64_t capacity) : blocks_(capacity) {}
  // Forgets the pieces beyond the first `bytes` bytes.
  void Unregister(int64_t bytes);

  Blocks blocks_;
  Device* device_ = nullptr;
  int fd_ = -1;
  uint8_t* base_ = nullptr;
  int64_t touched_ = 0;  // beyond it no page was backed
  std::vector<Piece> pieces_;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_STORE_SEGMENT_H_

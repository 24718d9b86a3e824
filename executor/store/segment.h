// The memory that a session shares with its clients on the same host: a sealed memfd that both map.
// If the device can access the host's memory, the session's tensors are in it and need no copy.
// Otherwise they are copied through it.
//
// Pages are backed when touched and freed by Trim. The file is sealed against shrinking and
// growing, so no client can remove memory that the executor uses. A client can change its contents
// at any time, and kernels load each value that matters once.
#ifndef OPWIRE_EXECUTOR_STORE_SEGMENT_H_
#define OPWIRE_EXECUTOR_STORE_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/store/blocks.h"
#include "ir/base/status.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class Segment {
 public:
  // Reserves address space only. Memory for copies from or to `device` is registered there, so that
  // they have full speed; null: no device. UNAVAILABLE when the system refuses.
  static StatusOr<std::unique_ptr<Segment>> Create(int64_t capacity, Device* device = nullptr);
  ~Segment();
  Segment(const Segment&) = delete;

  // Like Blocks. The contents are undefined.
  StatusOr<int64_t> Allocate(int64_t bytes);
  void Free(int64_t offset, int64_t bytes) { blocks_.Free(offset, bytes); }
  // Returns the pages of free blocks to the system.
  void Trim();

  uint8_t* base() const { return base_; }
  int64_t capacity() const { return blocks_.capacity(); }
  int fd() const { return fd_; }

  // Returns how many of the bytes from `offset` the next copy may take. Memory is registered in
  // pieces, and no copy may cross a border. A piece is registered at its second use, because
  // registration takes longer than a copy without it.
  int64_t BeginCopy(int64_t offset, int64_t bytes);

 private:
  struct Piece {
    bool used = false, registered = false;
  };
  explicit Segment(int64_t capacity) : blocks_(capacity) {}
  // Unregisters the pieces beyond the first `bytes` bytes.
  void Unregister(int64_t bytes);

  Blocks blocks_;
  Device* device_ = nullptr;
  int fd_ = -1;
  uint8_t* base_ = nullptr;
  int64_t touched_ = 0;  // beyond it no page is backed
  std::vector<Piece> pieces_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_STORE_SEGMENT_H_

// The memory of one session on a host: a sealed memfd that client and executor map, so tensors on one host move in place.
//
// Pages are backed when touched and given back by Trim. Sealed against shrinking and growing, so no client can pull memory from under
// the executor; what it writes there can change at any time, and kernels load each value that matters once.
#ifndef OPWIRE_EXECUTOR_STORE_SEGMENT_H_
#define OPWIRE_EXECUTOR_STORE_SEGMENT_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

class Segment {
 public:
  // Reserves address space only. UNAVAILABLE when the system refuses.
  static StatusOr<std::unique_ptr<Segment>> Create(int64_t capacity);
  ~Segment();
  Segment(const Segment&) = delete;

  // The offset of `bytes` bytes, 64-byte aligned, of undefined contents; RESOURCE_EXHAUSTED when no gap is large enough. A block
  // freed before is taken first, without allocation on the heap.
  StatusOr<int64_t> Allocate(int64_t bytes);
  // REQUIRES: offset came from Allocate with this size and was not freed since.
  void Free(int64_t offset, int64_t bytes);
  // Gives the pages of free blocks back to the system.
  void Trim();

  uint8_t* base() const { return base_; }
  int64_t capacity() const { return capacity_; }
  int fd() const { return fd_; }
  // Bytes as Allocate rounds them.
  static int64_t Rounded(int64_t bytes);

 private:
  static constexpr int kBins = 64 + 48 * 8;
  Segment() = default;
  static int BinOf(int64_t rounded);
  StatusOr<int64_t> TakeFresh(int64_t rounded);
  void Coalesce();

  int fd_ = -1;
  uint8_t* base_ = nullptr;
  int64_t capacity_ = 0;
  int64_t top_ = 0;                               // beyond it nothing was ever allocated
  std::array<std::vector<int64_t>, kBins> bins_;  // free blocks of one rounded size
  std::map<int64_t, int64_t> gaps_;               // free ranges by offset
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_STORE_SEGMENT_H_

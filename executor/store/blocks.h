// Offsets of blocks in one range of addresses: size classes first, then a coalescing map of gaps.
// It accesses no memory.
#ifndef OPWIRE_EXECUTOR_STORE_BLOCKS_H_
#define OPWIRE_EXECUTOR_STORE_BLOCKS_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "ir/base/status.h"

namespace opwire::executor {

class Blocks {
 public:
  explicit Blocks(int64_t capacity) : capacity_(capacity) {}

  // Returns the offset of `bytes` bytes, 64-byte aligned; blocks of at least a page begin on a
  // page's boundary. RESOURCE_EXHAUSTED: no gap is large enough. A freed block is reused first,
  // without an allocation on the heap.
  StatusOr<int64_t> Allocate(int64_t bytes);
  // REQUIRES: Allocate returned the offset for this size, and it was not freed since.
  void Free(int64_t offset, int64_t bytes);
  // Joins free neighbours to one gap. Removes a gap at the end.
  void Coalesce();

  int64_t capacity() const { return capacity_; }
  int64_t top() const { return top_; }  // beyond it nothing is allocated
  const std::map<int64_t, int64_t>& gaps() const {
    return gaps_;
  }  // free ranges below it, by offset; all of them after Coalesce
  // Bytes as Allocate rounds them.
  static int64_t Rounded(int64_t bytes);

 private:
  static constexpr int kBins = 64 + 48 * 8;
  static int BinOf(int64_t rounded);
  StatusOr<int64_t> TakeFresh(int64_t rounded);

  const int64_t capacity_;
  int64_t top_ = 0;
  std::array<std::vector<int64_t>, kBins> bins_;  // free blocks of one rounded size
  std::map<int64_t, int64_t> gaps_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_STORE_BLOCKS_H_

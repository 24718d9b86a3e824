// Memory of emulated GPUs: pages of this process that are accessible only during a copy or a
// kernel. Each allocation is between guard pages.
#ifndef OPWIRE_KERNELS_DEVICE_EMU_MEMORY_H_
#define OPWIRE_KERNELS_DEVICE_EMU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>

namespace opwire::gpu::emu {

// Any thread.
class Memory {
 public:
  static Memory& Get();

  // Aligned to 256 bytes; null if memory is exhausted. The last bytes are before a guard page.
  void* Allocate(size_t bytes);
  // The address is not used again, and faults, until about 1,000 later ones were freed too.
  void Free(void* memory);
  // Address space, and pages that back a part of it. REQUIRES: whole pages.
  void* Reserve(size_t bytes);
  void Unreserve(void* base, size_t bytes);
  bool Commit(void* at, size_t bytes);
  void Decommit(void* at);
  int64_t in_use() const;

  // While one exists, all of the memory can be read and written, or those pages that overlap a
  // range.
  class Access {
   public:
    Access() { Get().ChangeAll(+1); }
    Access(const void* at, size_t bytes) : range_(static_cast<const char*>(at), bytes) {
      Get().Change(range_, +1);
    }
    ~Access() { range_.data() ? Get().Change(range_, -1) : Get().ChangeAll(-1); }
    Access(const Access&) = delete;

   private:
    const std::string_view range_;  // without data: all
  };

 private:
  struct Block {
    char* mapped;
    size_t mapped_bytes;
  };
  struct Pages {
    size_t bytes;
    int accesses = 0;  // to these alone
  };
  void ChangeAll(int accesses);
  void Change(std::string_view range, int accesses);
  int ProtectionOf(const Pages& pages) const;

  mutable std::mutex mutex_;       // guards the following fields
  int accesses_ = 0;               // to all
  std::map<char*, Pages> pages_;   // accessible while an access is in progress
  std::map<char*, Block> blocks_;  // by the address that was given out
  std::deque<Block> freed_;        // the last ones, without pages
};

}  // namespace opwire::gpu::emu

#endif  // OPWIRE_KERNELS_DEVICE_EMU_MEMORY_H_

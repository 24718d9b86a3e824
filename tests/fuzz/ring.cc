// A hostile client's ring: any bytes as control words and records, read by the server's end.
#include "ir/wire/ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  static constexpr size_t kMapped = 1 << 16;  // the control pages and the beginning of the records
  auto end = RingEnd::Create();
  if (!end.ok()) return 0;
  void* shared =
      mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, (*end)->handles().memory, 0);
  if (shared == MAP_FAILED) return 0;
  auto* bytes = static_cast<uint8_t*>(shared);
  // How much is said to be written and read, then records.
  if (size >= 16) {
    std::memcpy(bytes, data, 8);
    std::memcpy(bytes + 4096 + 64, data + 8, 8);
    std::memcpy(bytes + 8192, data + 16, std::min(size - 16, kMapped - 8192));
  }
  std::string head, bulk;
  for (int i = 0; i < 64; ++i) {
    auto got = (*end)->Read(head, bulk);
    if (!got.ok() || !*got) break;
  }
  for (int i = 0; i < 4; ++i) (void)(*end)->Write({data, size}, {data, size / 2});
  munmap(shared, kMapped);
  return 0;
}

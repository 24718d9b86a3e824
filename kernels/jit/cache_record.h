// An entry's record.json.
#ifndef OPWIRE_KERNELS_JIT_CACHE_RECORD_H_
#define OPWIRE_KERNELS_JIT_CACHE_RECORD_H_

#include <optional>
#include <string>
#include <string_view>

#include "kernels/jit/cache.h"

namespace opwire::jit {

struct CacheRecord {
  CacheEntry entry;    // without the object's path and the time of the last use
  std::string unit;    // that it was built for
  std::string sha256;  // of the object
};

std::string WriteRecord(const CacheRecord& record);
// None: these bytes are no record.
std::optional<CacheRecord> ParseRecord(std::string_view text);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_RECORD_H_

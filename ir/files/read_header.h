// Reads the part of a tensor file that its header needs.
#ifndef OPWIRE_IR_FILES_READ_HEADER_H_
#define OPWIRE_IR_FILES_READ_HEADER_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

// Returns the header that `parse` (ParseGguf, ParseSafetensors) finds in a file of `file_bytes`.
// Reads a longer beginning while `parse` needs one, at most `most` bytes. `read(into, bytes,
// offset)` returns a Status and reads bytes of the file; none of them twice.
template <typename Header, typename Read>
StatusOr<Header> ReadHeader(StatusOr<Header> (*parse)(std::span<const uint8_t>, int64_t),
                            int64_t most, int64_t file_bytes, const Read& read) {
  constexpr int64_t kFirst = 1 << 20;
  most = std::min(most, file_bytes);
  std::vector<uint8_t> head;
  for (int64_t bytes = std::min(kFirst, most);; bytes = std::min(4 * bytes, most)) {
    const auto have = static_cast<int64_t>(head.size());
    head.resize(static_cast<size_t>(bytes));
    OPWIRE_RETURN_IF_ERROR(read(head.data() + have, bytes - have, have));
    StatusOr<Header> header = parse(head, file_bytes);
    if (header.ok() || !absl::IsOutOfRange(header.status()) || bytes == most) return header;
  }
}

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_READ_HEADER_H_

// Lengths are 8 bytes in the host's order: both ends are one program.
#include "kernels/jit/rtc_protocol.h"

#include <cstdint>
#include <cstring>

namespace opwire::jit {

std::string EncodeFields(const Fields& fields) {
  std::string out;
  for (const std::string& field : fields) {
    const uint64_t length = field.size();
    out.append(reinterpret_cast<const char*>(&length), sizeof(length));
    out.append(field);
  }
  return out;
}

std::optional<Fields> DecodeFields(std::string_view bytes) {
  Fields fields;
  while (!bytes.empty()) {
    uint64_t length;
    if (bytes.size() < sizeof(length)) return std::nullopt;
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    if (length > bytes.size()) return std::nullopt;
    fields.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return fields;
}

}  // namespace opwire::jit

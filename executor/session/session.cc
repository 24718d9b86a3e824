// What names may be.
#include "executor/session/session.h"

namespace opwire::executor {

Status CheckName(std::string_view what, std::string_view name, size_t most) {
  if (name.size() > most)
    return InvalidArgument("name of {}: expected at most {} bytes, got {}", what, most,
                           name.size());
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7f) {
      return InvalidArgument("name of {}: expected no control characters, got byte {:#04x} at {}",
                             what, byte, i);
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::executor

// Capabilities as text.
#include "ir/wire/capability.h"

namespace opwire {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string CapabilityText(std::span<const uint8_t> capability) {
  std::string text;
  for (const uint8_t byte : capability) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

StatusOr<std::vector<uint8_t>> CapabilityOf(std::string_view text) {
  const size_t bad = text.find_first_not_of(kDigits);
  if (text.size() != 2 * kCapabilityBytes || bad != text.npos) {
    return InvalidArgument("capability: expected {} hexadecimal digits, got {}",
                           2 * kCapabilityBytes,
                           bad != text.npos ? fmt::format("another character at {}", bad)
                                            : std::to_string(text.size()));
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(kDigits.find(text[i]) << 4 | kDigits.find(text[i + 1])));
  return bytes;
}

}  // namespace opwire

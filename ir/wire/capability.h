// What a granted tensor is taken by, as text: 32 hexadecimal digits for its 16 bytes.
#ifndef OPWIRE_IR_WIRE_CAPABILITY_H_
#define OPWIRE_IR_WIRE_CAPABILITY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

inline constexpr size_t kCapabilityBytes = 16;

std::string CapabilityText(std::span<const uint8_t> capability);
// INVALID_ARGUMENT for all else than 32 digits of 0-9 and a-f.
StatusOr<std::vector<uint8_t>> CapabilityOf(std::string_view text);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_CAPABILITY_H_

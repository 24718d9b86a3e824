// Programs to bytes and back. Equal modules built in the same order give equal bytes, so a hash of
// them is an identity.
#ifndef OPWIRE_IR_PROGRAM_SERIALISE_H_
#define OPWIRE_IR_PROGRAM_SERIALISE_H_

#include <cstdint>
#include <span>
#include <string>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire {

inline constexpr uint32_t kProgramFormat = 1;

std::string Serialise(const Module& module);

// Any bytes are safe: they are copied to aligned memory, checked by FlatBuffers' verifier, and
// every index by us. What comes back is well-formed as a data structure; whether it is a program is
// for VerifyModule to say. INVALID_ARGUMENT otherwise.
StatusOr<Module> Deserialise(std::span<const uint8_t> bytes);

// XXH3-128 of the bytes.
struct ProgramHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ProgramHash&) const = default;
};
ProgramHash HashProgram(std::span<const uint8_t> bytes);

}  // namespace opwire

#endif  // OPWIRE_IR_PROGRAM_SERIALISE_H_

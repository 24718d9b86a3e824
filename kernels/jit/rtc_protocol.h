// Requests to the process that compiles for GPUs, and its answers: lists of fields, each with its
// length before it.
#ifndef OPWIRE_KERNELS_JIT_RTC_PROTOCOL_H_
#define OPWIRE_KERNELS_JIT_RTC_PROTOCOL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace opwire::jit {

using Fields = std::vector<std::string>;

std::string EncodeFields(const Fields& fields);
// nullopt if the bytes are not such a list.
std::optional<Fields> DecodeFields(std::string_view bytes);

// Requests, with the fields after the first.
//   kProbe                              which library is available?
//   kCompile, name, arch, text, flag... compile the unit into kObjectFile of the directory in which
//   the worker was started
inline constexpr std::string_view kProbe = "probe";
inline constexpr std::string_view kCompile = "compile";
inline constexpr const char* kObjectFile = "object";

// Answers.
//   kDone, path, version, identity, arch...  to kProbe
//   kDone, log                               to kCompile
//   kRefused, log                            the unit does not compile, or a flag is unknown
//   kExhausted, log                          memory or disk is full
//   kFailed, message                         anything else; to kProbe: why there is no library
inline constexpr std::string_view kDone = "done";
inline constexpr std::string_view kRefused = "refused";
inline constexpr std::string_view kExhausted = "exhausted";
inline constexpr std::string_view kFailed = "failed";

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_RTC_PROTOCOL_H_

// Which format of tensors a file has, by its first bytes.
#ifndef OPWIRE_IR_FILES_FILE_KIND_H_
#define OPWIRE_IR_FILES_FILE_KIND_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/base/status.h"

namespace opwire {

enum class FileKind : uint8_t { kNpy, kGguf, kSafetensors };

// As many bytes as KindOfFile looks at.
inline constexpr int64_t kKindBytes = 4096;

// The format of a file of `file_bytes` that begins with `file`, kKindBytes or the whole file. If
// the bytes say nothing, the suffix of `name` decides, in any case of letters: the format's parser
// then says what is broken. INVALID_ARGUMENT for anything else, with what the file is and what to
// do.
StatusOr<FileKind> KindOfFile(std::span<const uint8_t> file, int64_t file_bytes,
                              std::string_view name);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_FILE_KIND_H_

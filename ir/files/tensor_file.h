// Files of named tensors: the facts about each tensor in their headers, and the common rules of all
// formats for the places of tensors. Readers take the beginning of a file and validate everything.
// Messages name the format, the byte and the expectation.
#ifndef OPWIRE_IR_FILES_TENSOR_FILE_H_
#define OPWIRE_IR_FILES_TENSOR_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"

namespace opwire {

inline constexpr int64_t kMaxFileTensors = 65536;
inline constexpr size_t kShownName = 64;  // characters of a name in a message

struct FileTensor {
  std::string name;
  std::string type;               // as the format calls it: "Q4_1", "BF16"
  DType dtype = DType::kInvalid;  // kInvalid: a type of the format that we do not support
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;     // row-major, the outermost first
  int64_t offset = 0, bytes = 0;  // in the file
  int64_t declared = 0;           // the byte of the header that declares it, for messages
};

// Returns the tensor of this name. NOT_FOUND with the number of tensors. UNIMPLEMENTED if we do not
// support its type.
StatusOr<const FileTensor*> FindTensor(std::span<const FileTensor> tensors, std::string_view name);

// Checks that tensors are in [begin, file_bytes) and do not overlap. Gaps between and after them
// must be padding: shorter than `alignment` bytes. Names must be unique. Otherwise
// INVALID_ARGUMENT, whose message begins with `format`.
Status CheckPlaces(std::span<const FileTensor> tensors, int64_t begin, int64_t file_bytes,
                   int64_t alignment, std::string_view format);

// Whether the bytes are well-formed UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_TENSOR_FILE_H_

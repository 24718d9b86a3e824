// Files that hold named tensors: what their headers say of each, and the rules of where tensors may
// lie that all formats share. Readers take the beginning of a file and trust nothing; messages name
// the format, the byte and what was expected there.
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
  DType dtype = DType::kInvalid;  // kInvalid: a type of the format that is none of ours
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;     // row-major, the outermost first
  int64_t offset = 0, bytes = 0;  // in the file
  int64_t declared = 0;           // the byte of the header that says so, for messages
};

// The tensor of this name. NOT_FOUND with how many there are; UNIMPLEMENTED where its type is none
// of ours.
StatusOr<const FileTensor*> FindTensor(std::span<const FileTensor> tensors, std::string_view name);

// Tensors lie in [begin, file_bytes), none over another, and what belongs to none, between and
// behind them, is less than `alignment` bytes at a place: padding. Names are given once.
// INVALID_ARGUMENT, with `format` in front, else.
Status CheckPlaces(std::span<const FileTensor> tensors, int64_t begin, int64_t file_bytes,
                   int64_t alignment, std::string_view format);

// Whether the bytes are well-formed UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_TENSOR_FILE_H_

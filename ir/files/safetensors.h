// The header of safetensors files: a length, and JSON that says where the tensors lie.
//   https://huggingface.co/docs/safetensors/index#format
#ifndef OPWIRE_IR_FILES_SAFETENSORS_H_
#define OPWIRE_IR_FILES_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/files/tensor_file.h"

namespace opwire {

inline constexpr int64_t kSafetensorsMaxHeader = 32 << 20;  // bytes

struct SafetensorsHeader {
  std::map<std::string, std::string, std::less<>> metadata;  // __metadata__
  std::vector<FileTensor> tensors;                           // in the header's order
  int64_t data_offset = 0;                                   // where tensors begin
};

// `file` is the beginning of a file of `file_bytes`. OUT_OF_RANGE where the header goes on behind
// it: a longer beginning is needed, of kSafetensorsMaxHeader at the most. INVALID_ARGUMENT, with
// the byte and the reason, for anything but a whole header of tensors that lie side by side and
// fill the file.
StatusOr<SafetensorsHeader> ParseSafetensors(std::span<const uint8_t> file, int64_t file_bytes);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_SAFETENSORS_H_

// The header of safetensors files: a length, and JSON with the places of tensors.
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
  int64_t data_offset = 0;                                   // the offset of the tensors
};

// Parses `file`, the beginning of a file of `file_bytes`. OUT_OF_RANGE if the header is longer: a
// longer beginning is needed, of at most kSafetensorsMaxHeader. INVALID_ARGUMENT, with the byte and
// the reason, unless it is a whole header of tensors that are contiguous and fill the file.
StatusOr<SafetensorsHeader> ParseSafetensors(std::span<const uint8_t> file, int64_t file_bytes);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_SAFETENSORS_H_

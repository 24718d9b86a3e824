// The header of GGUF files, versions 2 and 3, little-endian: key-values and the places of tensors.
//   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef OPWIRE_IR_FILES_GGUF_H_
#define OPWIRE_IR_FILES_GGUF_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ir/base/status.h"
#include "ir/files/tensor_file.h"

namespace opwire {

inline constexpr int64_t kGgufMaxHeader = 64 << 20;  // bytes
inline constexpr int64_t kGgufMaxKeys = 65536;
inline constexpr int64_t kGgufMaxElements = 4 << 20;  // of all arrays together
inline constexpr int64_t kGgufMaxKeyBytes = 65535;    // from the format
inline constexpr int64_t kGgufMaxNameBytes = 64;      // of a tensor; ggml's limit
inline constexpr int kGgufMaxRank = 4;                // ggml's limit

// Integers of all widths are 64 bits here, floats are f64. Arrays of arrays are refused, as ggml
// does.
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>,
                               std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
                               std::vector<std::string>>;

struct GgufHeader {
  uint32_t version = 0;
  int64_t alignment = 32;  // of tensors, in bytes
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<FileTensor> tensors;  // in the header's order
  int64_t data_offset = 0;          // the offset of the tensors
};

// Parses `file`, the beginning of a file of `file_bytes`. OUT_OF_RANGE if the header is longer: a
// longer beginning is needed, of at most kGgufMaxHeader. INVALID_ARGUMENT, with the byte and the
// reason, unless it is a whole header whose tensors are in the file, aligned and contiguous.
StatusOr<GgufHeader> ParseGguf(std::span<const uint8_t> file, int64_t file_bytes);

}  // namespace opwire

#endif  // OPWIRE_IR_FILES_GGUF_H_

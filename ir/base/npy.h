// The header of NumPy's .npy files (format 1.0, 2.0), for one dense row-major tensor.
//   https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef OPWIRE_IR_BASE_NPY_H_
#define OPWIRE_IR_BASE_NPY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"

namespace opwire {

struct NpyHeader {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // the offset of the elements
  int64_t data_bytes = 0;
};

// INVALID_ARGUMENT unless it is a complete little-endian C-ordered array of one of our element
// types. Any bytes are safe. `file` may be a prefix of at least kNpyMaxHeader bytes of a file of
// `file_bytes`.
StatusOr<NpyHeader> ParseNpyHeader(std::span<const uint8_t> file, int64_t file_bytes);
inline constexpr int64_t kNpyMaxHeader = 1 << 16;

// UNIMPLEMENTED for 8-bit floats, for which NumPy has no name. bf16 is written as '<V2', as
// ml_dtypes does.
StatusOr<std::string> MakeNpyHeader(DType dtype, std::span<const int64_t> shape);

// Writes header and elements to an open file. Returns false, with errno, if it could not write all
// of them.
bool WriteNpy(int fd, std::string_view header, std::span<const uint8_t> elements);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_NPY_H_

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
  int64_t data_offset = 0;  // where the elements begin
  int64_t data_bytes = 0;
};

// INVALID_ARGUMENT for anything but a little-endian C-ordered array of an element type of ours
// whose elements are all there. Any bytes are safe. `file` may be a prefix of at least
// kNpyMaxHeader bytes of a file of `file_bytes`.
StatusOr<NpyHeader> ParseNpyHeader(std::span<const uint8_t> file, int64_t file_bytes);
inline constexpr int64_t kNpyMaxHeader = 1 << 16;

// UNIMPLEMENTED for 8-bit floats, which NumPy has no name for. bf16 is written as '<V2', as
// ml_dtypes does.
StatusOr<std::string> MakeNpyHeader(DType dtype, std::span<const int64_t> shape);

// Header and elements into an open file; false with errno where they are not all written.
bool WriteNpy(int fd, std::string_view header, std::span<const uint8_t> elements);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_NPY_H_

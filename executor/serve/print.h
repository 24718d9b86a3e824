// A tensor as text, as NumPy prints arrays.
#ifndef OPWIRE_EXECUTOR_SERVE_PRINT_H_
#define OPWIRE_EXECUTOR_SERVE_PRINT_H_

#include <cstdint>
#include <span>
#include <string>

#include "ir/base/dtype.h"

namespace opwire::executor {

// "f32[2, 3]" and the elements in nested brackets. Beyond `max_elements` (0: 1,000) each axis shows
// its first and last three.
std::string PrintTensorText(DType dtype, Encoding encoding, std::span<const int64_t> shape,
                            const void* data, uint32_t max_elements);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_PRINT_H_

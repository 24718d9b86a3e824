// Single elements of any type: their value, their bits, their text.
#ifndef OPWIRE_IR_BASE_ELEMENT_H_
#define OPWIRE_IR_BASE_ELEMENT_H_

#include <cstdint>
#include <string>

#include "ir/base/dtype.h"

namespace opwire {

// Returns the value of the element at `at`, which need not be aligned. For a 64-bit integer, the
// nearest double.
double ElementValue(DType dtype, const void* at);

// Returns the element for `value`, in the low DTypeBytes(dtype) bytes, with the conversion of the
// op `cast`. Floating types round to nearest. A real number saturates to an integer type, and NaN
// becomes 0. An integer wraps around. bool is whether the value is not 0.
uint64_t ElementBits(DType dtype, double value);
uint64_t ElementBits(DType dtype, int64_t value);

// "true", "-3", "0.1": enough digits to distinguish it from its neighbours. f16 needs four, bf16
// and the 8-bit types three.
std::string ElementText(DType dtype, const void* at);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_ELEMENT_H_

// Single elements of any type: their value, their bits, their text.
#ifndef OPWIRE_IR_BASE_ELEMENT_H_
#define OPWIRE_IR_BASE_ELEMENT_H_

#include <cstdint>
#include <string>

#include "ir/base/dtype.h"

namespace opwire {

// The value of the element at `at`, which need not be aligned. Of the 64-bit integers the nearest
// one.
double ElementValue(DType dtype, const void* at);

// The element that stands for `value`, in the low DTypeBytes(dtype) bytes, as the op `cast` makes
// it: floating types round to nearest; a real number saturates to an integer type, and NaN becomes
// 0; a whole one wraps around; bool is whether it is not 0.
uint64_t ElementBits(DType dtype, double value);
uint64_t ElementBits(DType dtype, int64_t value);

// "true", "-3", "0.1": as many digits as tell it from its neighbours, four for f16 and three for
// bf16 and the 8-bit types.
std::string ElementText(DType dtype, const void* at);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_ELEMENT_H_

// Loops of the quant family over contiguous elements, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_QUANT_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_QUANT_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::quant {

// Of n elements at least one the least and the largest, or with `symmetric` the largest magnitude,
// NaN where one is.
using RangeLoop = void (*)(const void* x, int64_t n, bool symmetric, double* least, double* most);
// The values of n elements; for 4 bits n is even.
using QuantizeLoop = void (*)(void* values, const void* x, int64_t n, int bits, double factor,
                              double offset);
// And back. `offset` null: none.
using DequantizeLoop = void (*)(void* y, const void* values, int64_t n, int bits, double scale,
                                const double* offset);

// By type of the floats; dequantize with params of the type that it computes in. Null: none.
struct QuantLoops {
  RangeLoop range[16];
  QuantizeLoop quantize[16];
  DequantizeLoop dequantize[16];
};

const QuantLoops& QuantLoopsAvx2();
const QuantLoops& QuantLoopsAvx512();

}  // namespace opwire::ops::quant

#endif  // OPWIRE_KERNELS_OPS_QUANT_CPU_LOOPS_H_

// Elementwise loops over contiguous or repeated elements, in the files built for an instruction
// set.
#ifndef OPWIRE_KERNELS_OPS_ELEMENTWISE_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_ELEMENTWISE_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::elementwise {

// Computes n results. Operand i is contiguous, or one element for all if bit i of `repeated` is
// set. The result may be one of the contiguous operands. Returns the OPW_FLAG_* that it raises.
// REQUIRES: n > 0.
using ElementwiseLoop = uint32_t (*)(void* result, const void* const* operands, int64_t n,
                                     unsigned repeated);

struct FastOp {
  const char* op;
  int operands;
  bool swap;                  // the loop takes operands 0 and 1 in reverse order
  ElementwiseLoop loops[16];  // by the last operand's element type; null: not available
};
// Casts: by operand's and result's element type.
struct FastCasts {
  ElementwiseLoop loops[16][16];
};
struct FastElementwise {
  const FastOp* ops;
  int count;
};

FastElementwise FastElementwiseAvx2();
FastElementwise FastElementwiseAvx512();
const FastCasts& FastCastsAvx2();
const FastCasts& FastCastsAvx512();
// Loops of the widest instruction set here: casts, and relu of a type. Null if there are none.
const FastCasts* WidestCasts();
ElementwiseLoop WidestRelu(uint8_t type);

}  // namespace opwire::ops::elementwise

#endif  // OPWIRE_KERNELS_OPS_ELEMENTWISE_CPU_LOOPS_H_

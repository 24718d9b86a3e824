// Loops of integer division, remainder and power of one instruction set: plain, for the compiler to
// vectorise where the processor can. The includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/ops/elementwise/integer_functions.inc.h"

namespace opwire::ops::elementwise::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// y[i] = Op::Apply(a[i], b[i], &zeros); `zeros` counts divisions by zero.
template <typename Op, typename T, typename A, typename B>
inline uint32_t IntegerLoopOf(T* y, int64_t n, const A& a, const B& b) {
  T zeros = 0;
  for (int64_t i = 0; i < n; ++i) y[i] = Op::template Apply<T>(a(i), b(i), &zeros);
  return zeros != 0 ? static_cast<uint32_t>(OPW_FLAG_DIVIDE) : 0;
}
template <typename Op, typename T>
uint32_t IntegerLoop(void* to, const void* const* in, int64_t n, unsigned repeated) {
  T* const y = static_cast<T*>(to);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  const T first = *a, second = *b;
  const auto all_a = [a](int64_t i) { return a[i]; }, all_b = [b](int64_t i) { return b[i]; };
  const auto one_a = [first](int64_t) { return first; },
             one_b = [second](int64_t) { return second; };
  if ((repeated & 1) != 0)
    return (repeated & 2) != 0 ? IntegerLoopOf<Op>(y, n, one_a, one_b)
                               : IntegerLoopOf<Op>(y, n, one_a, all_b);
  return (repeated & 2) != 0 ? IntegerLoopOf<Op>(y, n, all_a, one_b)
                             : IntegerLoopOf<Op>(y, n, all_a, all_b);
}

template <typename Op>
constexpr FastOp WithIntegers(FastOp e) {
  e.loops[OPW_I64] = IntegerLoop<Op, int64_t>;
  e.loops[OPW_I32] = IntegerLoop<Op, int32_t>;
  e.loops[OPW_I16] = IntegerLoop<Op, int16_t>;
  e.loops[OPW_I8] = IntegerLoop<Op, int8_t>;
  e.loops[OPW_U64] = IntegerLoop<Op, uint64_t>;
  e.loops[OPW_U32] = IntegerLoop<Op, uint32_t>;
  e.loops[OPW_U16] = IntegerLoop<Op, uint16_t>;
  e.loops[OPW_U8] = IntegerLoop<Op, uint8_t>;
  return e;
}

}  // namespace
}  // namespace opwire::ops::elementwise::OPWIRE_ISA

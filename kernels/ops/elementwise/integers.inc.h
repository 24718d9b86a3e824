// Integer division, remainder and power of one instruction set: plain loops, for the compiler to vectorise where the processor
// can. The includer defines OPWIRE_ISA.
#include <type_traits>

#include "kernels/abi.h"
#include "kernels/ops/elementwise/fast.h"

namespace opwire::ops::OPWIRE_ISA {
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
  const auto one_a = [first](int64_t) { return first; }, one_b = [second](int64_t) { return second; };
  if ((repeated & 1) != 0)
    return (repeated & 2) != 0 ? IntegerLoopOf<Op>(y, n, one_a, one_b) : IntegerLoopOf<Op>(y, n, one_a, all_b);
  return (repeated & 2) != 0 ? IntegerLoopOf<Op>(y, n, all_a, one_b) : IntegerLoopOf<Op>(y, n, all_a, all_b);
}

// x/0 is 0, MIN/-1 is MIN. Quotients of up to 32 bits are exact after a division in a float type that holds both operands:
// a quotient that is not whole is further from the next whole number than rounding moves it.
template <bool kRemainder>
struct DivideOp {
  template <typename T>
  static T Apply(T a, T b, T* zeros) {
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;  // where products do not overflow
    const bool zero = b == 0, minus = std::is_signed_v<T> && b == static_cast<T>(-1);
    const T divisor = zero || minus ? T{1} : b;
    T q;
    if constexpr (sizeof(T) == 8)
      q = a / divisor;
    else if constexpr (sizeof(T) == 4)
      q = static_cast<T>(static_cast<double>(a) / static_cast<double>(divisor));
    else
      q = static_cast<T>(static_cast<int32_t>(static_cast<float>(a) / static_cast<float>(divisor)));
    *zeros |= static_cast<T>(zero);
    if (kRemainder) {
      const T r = static_cast<T>(static_cast<U>(a) - static_cast<U>(q) * static_cast<U>(divisor));
      return zero ? T{0} : r;
    }
    q = minus ? static_cast<T>(U{0} - static_cast<U>(q)) : q;
    return zero ? T{0} : q;
  }
};

// By squaring; wraps. A negative exponent gives 0 but for bases 1 and -1.
struct IntegerPowOp {
  template <typename T>
  static T Apply(T base, T exponent, T*) {
    using W = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    if (exponent < 0)
      return base == 1 || (base == static_cast<T>(-1) && (exponent & 1) == 0) ? 1 : base == static_cast<T>(-1) ? base : 0;
    W result = 1, square = static_cast<W>(base);
    for (W e = static_cast<W>(exponent); e != 0; e >>= 1, square *= square) result *= (e & 1) != 0 ? square : W{1};
    return static_cast<T>(result);
  }
};

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
}  // namespace opwire::ops::OPWIRE_ISA

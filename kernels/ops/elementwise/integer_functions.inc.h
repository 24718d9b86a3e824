// Integer division, remainder and power of one element. The includer defines OPWIRE_ISA.
#include <stdint.h>

#include <type_traits>

namespace opwire::ops::OPWIRE_ISA {
namespace {

// x/0 is 0, MIN/-1 is MIN. Quotients of up to 32 bits are exact if they are computed by a division
// in a float type that represents both operands. A quotient that is not whole is further from the
// next whole number than the rounding error.
template <bool kRemainder>
struct DivideOp {
  template <typename T>
  static T Apply(T a, T b, T* zeros) {
    using U =
        std::common_type_t<std::make_unsigned_t<T>, unsigned>;  // in which products do not overflow
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

// By squaring; wraps. A negative exponent gives 0, except for bases 1 and -1.
struct IntegerPowOp {
  template <typename T>
  static T Apply(T base, T exponent, T*) {
    using W = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    if (exponent < 0)
      return base == 1 || (base == static_cast<T>(-1) && (exponent & 1) == 0) ? 1
             : base == static_cast<T>(-1)                                     ? base
                                                                              : 0;
    W result = 1, square = static_cast<W>(base);
    for (W e = static_cast<W>(exponent); e != 0; e >>= 1, square *= square)
      result *= (e & 1) != 0 ? square : W{1};
    return static_cast<T>(result);
  }
};

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

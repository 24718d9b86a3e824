// The functions of elementwise ops for vectors of floats (double or float) or of integers.
#include <type_traits>

#include "kernels/ops/simd/math_by_lane.h"
#include "kernels/ops/simd/math_wide.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <typename V>
inline constexpr bool kFloatLanes = std::is_floating_point_v<LaneOf<V>>;
template <typename V>
using BitsOf = decltype(V{} == V{});

struct Value {
  static constexpr bool kTest = false;
};
struct Test {
  static constexpr bool kTest = true;
};

#define OPWIRE_UNARY(NAME, BASE, EXPRESSION) \
  struct NAME : BASE {                       \
    template <typename V>                    \
    static auto Apply(V a) {                 \
      return EXPRESSION;                     \
    }                                        \
  };
#define OPWIRE_BINARY(NAME, BASE, EXPRESSION) \
  struct NAME : BASE {                        \
    template <typename V>                     \
    static auto Apply(V a, V b) {             \
      return EXPRESSION;                      \
    }                                         \
  };

OPWIRE_BINARY(AddOp, Value, a + b)
OPWIRE_BINARY(SubOp, Value, a - b)
OPWIRE_BINARY(MulOp, Value, a* b)
OPWIRE_BINARY(DivOp, Value, a / b)
OPWIRE_BINARY(AndOp, Value, a& b)
OPWIRE_BINARY(OrOp, Value, a | b)
OPWIRE_BINARY(XorOp, Value, a ^ b)
OPWIRE_BINARY(ShlOp, Value, a << (b & static_cast<LaneOf<V>>(sizeof(LaneOf<V>) * 8 - 1)))
OPWIRE_BINARY(ShrOp, Value, a >> (b & static_cast<LaneOf<V>>(sizeof(LaneOf<V>) * 8 - 1)))
OPWIRE_BINARY(EqOp, Test, a == b)
OPWIRE_BINARY(NeOp, Test, a != b)
OPWIRE_BINARY(LtOp, Test, a < b)
OPWIRE_BINARY(LeOp, Test, a <= b)

#ifdef __AVX512F__
template <typename V>
inline constexpr bool kWholeFloats = kFloatLanes<V> && sizeof(V) == kVectorBytes;
// The smaller (4) or the larger (5) of each pair, by one instruction that orders zeros by their
// signs; the pair's sum if either is NaN.
template <int kMode, typename V>
inline V Extreme(V a, V b) {
  if constexpr (sizeof(LaneOf<V>) == 4) {
    const __m512 x = BitCast<__m512>(a), y = BitCast<__m512>(b);
    return BitCast<V>(_mm512_mask_add_ps(_mm512_range_ps(x, y, kMode),
                                         _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q), x, y));
  } else {
    const __m512d x = BitCast<__m512d>(a), y = BitCast<__m512d>(b);
    return BitCast<V>(_mm512_mask_add_pd(_mm512_range_pd(x, y, kMode),
                                         _mm512_cmp_pd_mask(x, y, _CMP_UNORD_Q), x, y));
  }
}
// A result for v's class, by one instruction. The class's digit of the table selects it: 0 is
// `rest`, 1 is v, 8 is zero. The digits, starting with the last, are for quiet NaNs, signalling
// ones, zeros, 1, -infinity, infinity, other negative numbers, other positive ones.
template <uint32_t kTable, typename V>
inline V ByClass(V rest, V v) {
  const Vec<int32_t> table =
      static_cast<int>(kTable) - Vec<int32_t>{};  // doubles use every other element
  if constexpr (sizeof(LaneOf<V>) == 4)
    return BitCast<V>(
        _mm512_fixupimm_ps(BitCast<__m512>(rest), BitCast<__m512>(v), BitCast<__m512i>(table), 0));
  else
    return BitCast<V>(_mm512_fixupimm_pd(BitCast<__m512d>(rest), BitCast<__m512d>(v),
                                         BitCast<__m512i>(table), 0));
}
#endif

// NaN if either is NaN; of equal zeros the smaller has a sign if either has. If one operand is
// neither NaN nor zero, one instruction suffices: it returns its second operand if neither is
// smaller.
struct MinOp : Value {
  template <typename V>
  static V Apply(V a, V b) {
#ifdef __AVX512F__
    if constexpr (kWholeFloats<V>) return Extreme<4>(a, b);
#endif
    V m = a < b ? a : b;
    if constexpr (kFloatLanes<V>) {
      m = a == b ? BitCast<V>(BitCast<BitsOf<V>>(a) | BitCast<BitsOf<V>>(b)) : m;
      m = b == b ? m : b;
      m = a == a ? m : a;
    }
    return m;
  }
  template <typename V>
  static V Bound(V x, V bound) {
    return bound < x ? bound : x;
  }
};
struct MaxOp : Value {
  template <typename V>
  static V Apply(V a, V b) {
#ifdef __AVX512F__
    if constexpr (kWholeFloats<V>) return Extreme<5>(a, b);
#endif
    V m = a > b ? a : b;
    if constexpr (kFloatLanes<V>) {
      m = a == b ? BitCast<V>(BitCast<BitsOf<V>>(a) & BitCast<BitsOf<V>>(b)) : m;
      m = b == b ? m : b;
      m = a == a ? m : a;
    }
    return m;
  }
  template <typename V>
  static V Bound(V x, V bound) {
    return bound > x ? bound : x;
  }
};
struct ClampOp : Value {
  template <typename V>
  static V Apply(V x, V low, V high) {
    return MinOp::Apply(MaxOp::Apply(x, low), high);
  }
};

OPWIRE_UNARY(CopyOp, Value, a)
OPWIRE_UNARY(NegOp, Value, -a)
OPWIRE_UNARY(NotOp, Value, ~a)
OPWIRE_UNARY(LogicalNotOp, Value, a ^ 1)
OPWIRE_UNARY(IsNanOp, Test, a != a)
OPWIRE_UNARY(IsInfOp, Test, Abs(a) == static_cast<LaneOf<V>>(__builtin_inf()))
OPWIRE_UNARY(SqrtOp, Value, Sqrt(a))
OPWIRE_UNARY(RsqrtOp, Value, 1 / Sqrt(a))
OPWIRE_UNARY(ReciprocalOp, Value, 1 / a)
OPWIRE_UNARY(FloorOp, Value, Floor(a))
OPWIRE_UNARY(CeilOp, Value, Ceil(a))
OPWIRE_UNARY(RoundOp, Value, RoundEven(a))
OPWIRE_UNARY(TruncOp, Value, Trunc(a))
OPWIRE_UNARY(ExpOp, Value, Exp(a))
OPWIRE_UNARY(LogOp, Value, Log(a))
OPWIRE_UNARY(Expm1Op, Value, Expm1(a))
OPWIRE_UNARY(Log1pOp, Value, Log1p(a))
OPWIRE_UNARY(Log2Op, Value, Log2(a))
OPWIRE_UNARY(Log10Op, Value, Log10(a))
OPWIRE_UNARY(SinOp, Value, Sin(a))
OPWIRE_UNARY(CosOp, Value, Cos(a))
OPWIRE_UNARY(TanOp, Value, Tan(a))
OPWIRE_UNARY(TanhOp, Value, Tanh(a))
OPWIRE_UNARY(ErfOp, Value, Erf(a))
OPWIRE_UNARY(AsinOp, Value, Asin(a))
OPWIRE_UNARY(AcosOp, Value, Acos(a))
OPWIRE_UNARY(SinhOp, Value, Sinh(a))
OPWIRE_UNARY(CoshOp, Value, Cosh(a))
OPWIRE_UNARY(AsinhOp, Value, Asinh(a))
OPWIRE_UNARY(AcoshOp, Value, Acosh(a))
OPWIRE_UNARY(AtanhOp, Value, Atanh(a))
OPWIRE_UNARY(SigmoidOp, Value, 1 / (1 + Exp(-a)))
OPWIRE_UNARY(SiluOp, Value, a / (1 + Exp(-a)))
OPWIRE_UNARY(GeluOp, Value, a* LaneOf<V>(0.5) * (1 + Erf(a * LaneOf<V>(0.70710678118654752440))))
OPWIRE_UNARY(GeluTanhOp, Value,
             a* LaneOf<V>(0.5) * (1 + Tanh(LaneOf<V>(0.79788456080286535588) *
                                           (a + LaneOf<V>(0.044715) * (a * a * a)))))
OPWIRE_BINARY(PowOp, Value, Pow(a, b))
OPWIRE_BINARY(FmodOp, Value, Fmod(a, b))
OPWIRE_BINARY(Atan2Op, Value, Atan2(a, b))
OPWIRE_BINARY(HypotOp, Value, Hypot(a, b))
OPWIRE_BINARY(LogAddExpOp, Value, LogAddExp(a, b))
#undef OPWIRE_UNARY
#undef OPWIRE_BINARY

struct ReluOp : Value {
  template <typename V>
  static V Apply(V a) {
#ifdef __AVX512F__
    if constexpr (kWholeFloats<V>) return ByClass<0x08080800>(a, a);
#endif
    return a <= 0 ? V{} : a;
  }
};
struct AbsOp : Value {
  template <typename V>
  static V Apply(V a) {
    if constexpr (kFloatLanes<V>) {
      return Abs(a);
    } else {
      typedef std::make_unsigned_t<LaneOf<V>> U
          __attribute__((vector_size(sizeof(V))));  // in which the least integer wraps to itself
      return a < 0 ? BitCast<V>(-BitCast<U>(a)) : a;
    }
  }
};
struct SignOp : Value {
  template <typename V>
  static V Apply(V a) {
    if constexpr (kFloatLanes<V>) {
      const V of_number = a > 0 ? V{} + 1 : (a < 0 ? V{} - 1 : V{});
      return a == a ? of_number : a;
    } else {
      return (a < 0) - (a > 0);  // masks are -1 where they are true
    }
  }
};

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

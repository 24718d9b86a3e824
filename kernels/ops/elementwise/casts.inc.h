// Casts of one instruction set, from every element type to every one except the 8-bit floats. The
// includer defines OPWIRE_ISA.
//
// Loops over the arithmetic types are plain, for the compiler to vectorise. The narrow floats are
// converted through blocks of f32, which represents them exactly. Values that f32 cannot represent
// are rounded to odd before they are rounded to a narrow float, so the result is rounded once.
#include <type_traits>

#include "kernels/abi.h"
#include "kernels/ops/elementwise/conversions.inc.h"
#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/ops/simd/math.h"

namespace opwire::ops::elementwise::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// y[i] = Op::Apply(x[i]).
template <typename Op, typename From, typename To>
uint32_t ConvertLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  const From* const x = static_cast<const From*>(in[0]);
  To* const z = static_cast<To*>(y);
  if ((repeated & 1) != 0) {
    const To value = Op::template Apply<To>(*x);
    for (int64_t i = 0; i < n; ++i) z[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) z[i] = Op::template Apply<To>(x[i]);
  }
  return 0;
}

// Whole vectors of the 16-bit floats to f32 and back.
template <typename From, typename To>
uint32_t VectorLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  static_assert(Mem<From>::kLanes == Mem<To>::kLanes);
  const From* const x = static_cast<const From*>(in[0]);
  To* const z = static_cast<To*>(y);
  if ((repeated & 1) != 0) {
    const auto value = Splat(Mem<From>::LoadN(x, 1)[0]);
    int64_t i = 0;
    for (; i + Mem<To>::kLanes <= n; i += Mem<To>::kLanes) Mem<To>::Store(z + i, value);
    if (i < n) Mem<To>::StoreN(z + i, value, n - i);
    return 0;
  }
  int64_t i = 0;
  for (; i + Mem<To>::kLanes <= n; i += Mem<To>::kLanes)
    Mem<To>::Store(z + i, Mem<From>::Load(x + i));
  if (i < n) Mem<To>::StoreN(z + i, Mem<From>::LoadN(x + i, n - i), n - i);
  return 0;
}

// The 8-bit floats to f32, through f16.
template <typename From>
uint32_t WidenEighths(void* y, const void* const* in, int64_t n, unsigned repeated) {
  constexpr int64_t kBlock = 256;
  const uint8_t* const x = static_cast<const uint8_t*>(in[0]);
  float* const z = static_cast<float*>(y);
  Half halves[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = n - at < kBlock ? n - at : kBlock;
    for (int64_t i = 0; i < m; ++i) {
      halves[i].bits = From::HalfBits(uint16_t{x[(repeated & 1) != 0 ? 0 : at + i]});
    }
    const void* const from[] = {halves};
    VectorLoop<Half, float>(z + at, from, m, 0);
    if (From::kScale != 1) {
      for (int64_t i = 0; i < m; ++i) z[at + i] *= From::kScale;
    }
  }
  return 0;
}

// The second loop after the first, with f32 between them.
template <ElementwiseLoop kFirst, ElementwiseLoop kSecond, int kFromBytes, int kToBytes>
uint32_t Through(void* y, const void* const* in, int64_t n, unsigned repeated) {
  constexpr int64_t kBlock = 512;
  alignas(kVectorBytes) float block[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = n - at < kBlock ? n - at : kBlock;
    const void* const x[] = {static_cast<const char*>(in[0]) +
                             ((repeated & 1) != 0 ? 0 : at * kFromBytes)};
    kFirst(block, x, m, repeated);
    const void* const b[] = {block};
    kSecond(static_cast<char*>(y) + at * kToBytes, b, m, 0);
  }
  return 0;
}

template <typename T>
inline constexpr bool kArithmetic = std::is_arithmetic_v<T>;
template <typename T>
inline constexpr bool kEighth = std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>;

// From an arithmetic type or Boolean to such a type. Signed and unsigned integers share a loop if
// only their width matters.
template <typename From, typename To>
constexpr ElementwiseLoop Direct() {
  if constexpr (std::is_same_v<From, Boolean> && std::is_same_v<To, Boolean>)
    return ConvertLoop<IsNonzero, uint8_t, uint8_t>;
  else if constexpr (std::is_same_v<From, Boolean> && std::is_integral_v<To>)
    return ConvertLoop<IsNonzero, uint8_t, std::make_unsigned_t<To>>;
  else if constexpr (std::is_same_v<From, Boolean>)
    return ConvertLoop<IsNonzero, uint8_t, To>;
  else if constexpr (std::is_same_v<To, Boolean> && std::is_integral_v<From>)
    return ConvertLoop<IsNonzero, std::make_unsigned_t<From>, uint8_t>;
  else if constexpr (std::is_same_v<To, Boolean>)
    return ConvertLoop<IsNonzero, From, uint8_t>;
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
    return ConvertLoop<Saturate, From, To>;
  else if constexpr (std::is_floating_point_v<From> || std::is_floating_point_v<To>)
    return ConvertLoop<Assign, From, To>;
  else if constexpr (sizeof(To) <= sizeof(From))
    return ConvertLoop<Assign, std::make_unsigned_t<From>, std::make_unsigned_t<To>>;
  else
    return ConvertLoop<Assign, From, std::make_unsigned_t<To>>;
}

// To f32: exact, or to odd.
template <typename From>
constexpr ElementwiseLoop Widen() {
  if constexpr (kEighth<From>)
    return WidenEighths<From>;
  else if constexpr (std::is_same_v<From, double> ||
                     (std::is_integral_v<From> && sizeof(From) >= 4))
    return ConvertLoop<RoundToOdd, From, float>;
  else if constexpr (kArithmetic<From> || std::is_same_v<From, Boolean>)
    return Direct<From, float>();
  else
    return VectorLoop<From, float>;
}
template <typename To>
constexpr ElementwiseLoop Narrow() {
  if constexpr (kArithmetic<To> || std::is_same_v<To, Boolean>)
    return Direct<float, To>();
  else
    return VectorLoop<float, To>;
}

template <typename From, typename To>
constexpr ElementwiseLoop Cast() {
  constexpr bool kPlainFrom = kArithmetic<From> || std::is_same_v<From, Boolean>;
  constexpr bool kPlainTo = kArithmetic<To> || std::is_same_v<To, Boolean>;
  if constexpr (kPlainFrom && kPlainTo)
    return Direct<From, To>();
  else if constexpr (std::is_same_v<To, float>)
    return Widen<From>();
  else if constexpr (std::is_same_v<From, float>)
    return Narrow<To>();
  else
    return Through<Widen<From>(), Narrow<To>(), sizeof(From), sizeof(To)>;
}

template <typename From>
constexpr void SetCasts(FastCasts* c, int from) {
  ElementwiseLoop* const to = c->loops[from];
  to[OPW_F64] = Cast<From, double>();
  to[OPW_F32] = Cast<From, float>();
  to[OPW_F16] = Cast<From, Half>();
  to[OPW_BF16] = Cast<From, BFloat16>();
  to[OPW_I64] = Cast<From, int64_t>();
  to[OPW_I32] = Cast<From, int32_t>();
  to[OPW_I16] = Cast<From, int16_t>();
  to[OPW_I8] = Cast<From, int8_t>();
  to[OPW_U64] = Cast<From, uint64_t>();
  to[OPW_U32] = Cast<From, uint32_t>();
  to[OPW_U16] = Cast<From, uint16_t>();
  to[OPW_U8] = Cast<From, uint8_t>();
  to[OPW_BOOL] = Cast<From, Boolean>();
}
constexpr FastCasts Casts() {
  FastCasts c{};
  SetCasts<double>(&c, OPW_F64);
  SetCasts<float>(&c, OPW_F32);
  SetCasts<Half>(&c, OPW_F16);
  SetCasts<BFloat16>(&c, OPW_BF16);
  SetCasts<E4M3>(&c, OPW_F8E4M3);
  SetCasts<E5M2>(&c, OPW_F8E5M2);
  SetCasts<int64_t>(&c, OPW_I64);
  SetCasts<int32_t>(&c, OPW_I32);
  SetCasts<int16_t>(&c, OPW_I16);
  SetCasts<int8_t>(&c, OPW_I8);
  SetCasts<uint64_t>(&c, OPW_U64);
  SetCasts<uint32_t>(&c, OPW_U32);
  SetCasts<uint16_t>(&c, OPW_U16);
  SetCasts<uint8_t>(&c, OPW_U8);
  SetCasts<Boolean>(&c, OPW_BOOL);
  return c;
}
constexpr FastCasts kCasts = Casts();

}  // namespace
}  // namespace opwire::ops::elementwise::OPWIRE_ISA

// What compiled units of fused code are written in: values as vectors of kLanes elements, kLanes
// being how many of a program's widest type fill a vector. A bool is a mask: integers of any width,
// all bits or none. The functions are those of the ops' own loops, so that bits are theirs. The
// includer defines OPWIRE_ISA.
#include <stdint.h>

#include "kernels/abi.h"
#include "kernels/fused/driver.inc.h"
#include "kernels/ops/elementwise/conversions.inc.h"
#include "kernels/ops/elementwise/functions.inc.h"
#include "kernels/ops/elementwise/integer_functions.inc.h"
#include "kernels/ops/simd/vector.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <typename E, int kLanes>
using Lanes = typename VectorOf<E, kLanes* static_cast<int>(sizeof(E))>::Type;
template <typename V>
inline constexpr int kLanesIn = sizeof(V) / sizeof(LaneOf<V>);
template <typename V, typename E>
using With = Lanes<E, kLanesIn<V>>;  // as many lanes as V has

// A vector's first lanes, or it and zeros after it.
template <typename To, typename V>
inline To Resize(V v) {
  To to{};
  __builtin_memcpy(&to, &v, sizeof(To) < sizeof(V) ? sizeof(To) : sizeof(V));
  return to;
}

// Memory and constants.

template <typename E, int kLanes>
inline Lanes<E, kLanes> Get(const char* p) {
  return LoadBytes<Lanes<E, kLanes>>(p);
}
// Asks for what the loop reads 4 KiB from here on: one that computes much is not that far ahead by
// itself. (Without it 20 ops on 64 MiB take half as long again as a copy, with it as long.)
inline void AskAhead(const char* p) { __builtin_prefetch(p + 4096); }
template <int kLanes>
inline Lanes<int8_t, kLanes> GetMask(const char* p) {
  return Get<uint8_t, kLanes>(p) != 0;
}
template <typename V>
inline void Put(char* p, V v, bool stream) {
  if constexpr (sizeof(V) >= 16) {
    if (stream) {
      asm volatile("vmovntdq %1, %0" : "=m"(*reinterpret_cast<V*>(p)) : "v"(v));
      return;
    }
  }
  StoreBytes(p, v);
}
// The low bytes of `bits` in all lanes, where the compiler cannot see them: so that it computes
// nothing with them by other means than a program of which they are an input.
template <typename E, int kLanes>
inline Lanes<E, kLanes> Constant(uint64_t bits) {
  asm("" : "+r"(bits));
  using I = typename SignedOf<sizeof(E)>::Type;
  return BitCast<Lanes<E, kLanes>>(static_cast<I>(bits) - Lanes<I, kLanes>{});
}
template <typename E, int kLanes>
inline Lanes<E, kLanes> Argument(const opw_attr& a) {
  E e;
  if constexpr (std::is_integral_v<E>)
    e = a.kind == OPW_ATTR_FLOAT ? Saturate::Apply<E>(a.value.f) : static_cast<E>(a.value.i);
  else
    e = a.kind == OPW_ATTR_FLOAT ? static_cast<E>(a.value.f) : static_cast<E>(a.value.i);
  return Constant<E, kLanes>(BitCast<typename SignedOf<sizeof(E)>::Type>(e));
}
template <int kLanes>
inline Lanes<int8_t, kLanes> MaskArgument(const opw_attr& a) {
  return Constant<int8_t, kLanes>(
      (a.kind == OPW_ATTR_FLOAT ? a.value.f != 0 : a.value.i != 0) ? ~uint64_t{0} : 0);
}

// Functions.

// One that takes only whole vectors.
template <typename Op, typename V, typename... Vs>
inline auto Whole(V v, Vs... vs) {
  if constexpr (sizeof(V) == kVectorBytes) {
    return Op::Apply(v, vs...);
  } else {
    using W = Vec<LaneOf<V>>;
    const auto y = Op::Apply(Resize<W>(v), Resize<W>(vs)...);
    return Resize<With<V, LaneOf<decltype(y)>>>(y);
  }
}
// MinOp or MaxOp of v and a number that all lanes share, of which kOrdered says whether IsBound
// held.
template <typename Op, bool kOrdered, typename V>
inline V Bounded(V v, V bound) {
  if constexpr (kOrdered)
    return Op::Bound(v, bound);
  else
    return Op::Apply(v, bound);
}
template <typename V>
inline bool IsBound(V v) {
  return v[0] == v[0] && v[0] != 0;
}
// One of signed integers that wraps.
template <typename Op, typename V, typename... Vs>
inline V Wrapping(V v, Vs... vs) {
  using U = With<V, std::make_unsigned_t<LaneOf<V>>>;
  return BitCast<V>(Op::Apply(BitCast<U>(v), BitCast<U>(vs)...));
}
// One of a pair of integers, lane by lane.
template <typename Op, typename V>
inline V Each(V a, V b, uint32_t* flags) {
  LaneOf<V> zeros = 0;
  V y;
  for (int i = 0; i < kLanesIn<V>; ++i) y[i] = Op::template Apply<LaneOf<V>>(a[i], b[i], &zeros);
  *flags |= zeros != 0 ? static_cast<uint32_t>(OPW_FLAG_DIVIDE) : 0;
  return y;
}
template <typename V>
inline V Canonical(V v) {
  constexpr bool kDouble = sizeof(LaneOf<V>) == 8;
  const V nan = LaneOf<V>(kDouble ? __builtin_nan("") : __builtin_nanf("")) - V{};
#ifdef __AVX512F__
  if constexpr (kWholeFloats<V>) return ByClass<0x11111100>(nan, v);
#endif
  return v == v ? v : nan;
}
template <typename M, typename V>
inline V Choose(M condition, V a, V b) {
  return ConvertVector<BitsOf<V>>(condition) != 0 ? a : b;
}

// Masks.

template <typename E, typename M>
inline With<M, E> Ones(M mask) {  // 1 where it holds, else 0
  return ConvertVector<With<M, E>>(mask & 1);
}
template <typename Op, typename A, typename B>
inline A OfMasks(A a, B b) {
  return Op::Apply(a, ConvertVector<A>(b));
}
template <typename M, typename A, typename B>
inline A ChooseMask(M condition, A a, B b) {
  return Choose(condition, a, ConvertVector<A>(b));
}

// Casts between the types that values compute in, and the narrow floats' bits to f32 and back.

template <typename To, typename V>
inline With<V, To> CastTo(V v) {
  if constexpr (std::is_floating_point_v<LaneOf<V>> && std::is_integral_v<To>) {
    With<V, To> y;
    for (int i = 0; i < kLanesIn<V>; ++i) y[i] = Saturate::Apply<To>(v[i]);
    return y;
  } else {
    return ConvertVector<With<V, To>>(v);
  }
}
// To f32, from which rounding to a narrower type is rounding once.
template <typename V>
inline With<V, float> ToNarrow(V v) {
  using E = LaneOf<V>;
  if constexpr (sizeof(E) < 4 || std::is_same_v<E, float>) {
    return ConvertVector<With<V, float>>(v);
  } else {
    With<V, float> y;
    for (int i = 0; i < kLanesIn<V>; ++i) y[i] = RoundToOdd::Apply<float>(v[i]);
    return y;
  }
}
template <typename S, typename V>
inline With<V, float> Widen(V v) {
  if constexpr (sizeof(S) == 2) {
    return Resize<With<V, float>>(Mem<S>::Widen(Resize<typename Mem<S>::Stored>(v)));
  } else {
    const auto half = Widen<Half>(S::HalfBits(ConvertVector<With<V, uint16_t>>(v)));
    return S::kScale != 1 ? half * S::kScale : half;
  }
}
template <typename S, typename V>
inline With<V, uint16_t> Narrow(V v) {
  return Resize<With<V, uint16_t>>(Mem<S>::Narrow(Resize<Vec<float>>(v)));
}
// To an 8-bit float of so many bits of mantissa, whose codes from kBeyond on hold no finite value.
// Below its normal numbers an addition aligns the last bit with f32's, so that the adder rounds.
template <int kMantissa, int kBias, uint32_t kBeyond, bool kSaturate, typename V>
inline With<V, uint8_t> NarrowEighth(V v) {
  using U = With<V, uint32_t>;
  constexpr int kDrop = 23 - kMantissa;
  constexpr float kAligned = static_cast<float>(1 << (24 - kMantissa - kBias));
  constexpr float kNormal = 2.0f / (1 << kBias);
  const U bits = BitCast<U>(v), magnitude = bits & 0x7fffffffu;
  const V absolute = BitCast<V>(magnitude);
  const U normal =
      ((magnitude + ((1u << (kDrop - 1)) - 1) + ((magnitude >> kDrop) & 1u)) >> kDrop) -
      ((127u - kBias) << kMantissa);
  const U small = BitCast<U>(absolute + kAligned) - BitCast<U>(kAligned - V{});
  U code = absolute < kNormal ? small : normal;
  code = code >= kBeyond ? (code & 0) + (kSaturate ? kBeyond - 1 : kBeyond) : code;
  code = v == v ? code : (code & 0) + 0x7fu;
  return ConvertVector<With<V, uint8_t>>(code | (bits >> 31 << 7));
}

// Programs.

// One element in all lanes.
template <typename U, int kLanes>
inline void Repeat(char* to, const char* from) {
  U element;
  __builtin_memcpy(&element, from, sizeof(U));
  for (int lane = 0; lane < kLanes; ++lane)
    __builtin_memcpy(to + lane * static_cast<int>(sizeof(U)), &element, sizeof(U));
}
template <int kLanes>
inline void RepeatOf(char* to, const char* from, int64_t bytes) {
  if (bytes == 4) return Repeat<uint32_t, kLanes>(to, from);
  if (bytes == 2) return Repeat<uint16_t, kLanes>(to, from);
  if (bytes == 8) return Repeat<uint64_t, kLanes>(to, from);
  Repeat<uint8_t, kLanes>(to, from);
}

// Calls Program::Loop for whole vectors, then for the rest in blocks, whose lanes beyond it repeat
// its first element.
template <typename Program>
uint32_t RunRows(const fused::Rows& rows) {
  constexpr int kLanes = Program::kLanes, kTensors = Program::kInputs + Program::kOutputs;
  alignas(64) char blocks[kTensors][64];
  int64_t bytes[kTensors], step[Program::kInputs + 1];
  fused::Rows part = rows;
  for (int t = 0; t < kTensors; ++t) bytes[t] = fused::kBytesOf[Program::kTypes[t]];
  for (int i = 0; i < Program::kInputs; ++i) {
    const bool repeated = (rows.repeated >> i & 1) != 0;
    step[i] = repeated ? 0 : bytes[i] * kLanes;
    if (!repeated) continue;
    RepeatOf<kLanes>(blocks[i], rows.in[i], bytes[i]);
    part.in[i] = blocks[i];
  }
  const int64_t whole = rows.n / kLanes, rest = rows.n % kLanes;
  uint32_t flags = whole > 0 ? Program::Loop(part, step, whole) : 0;
  if (rows.stream) asm volatile("sfence" ::: "memory");
  if (rest == 0) return flags;
  for (int i = 0; i < Program::kInputs; ++i) {
    if (step[i] == 0) continue;
    const char* const from = rows.in[i] + whole * step[i];
    RepeatOf<kLanes>(blocks[i], from, bytes[i]);
    __builtin_memcpy(blocks[i], from, rest * bytes[i]);
    part.in[i] = blocks[i];
  }
  for (int o = 0; o < Program::kOutputs; ++o) part.out[o] = blocks[Program::kInputs + o];
  part.stream = part.far = false;
  flags |= Program::Loop(part, step, 1);
  for (int o = 0; o < Program::kOutputs; ++o) {
    const int64_t size = bytes[Program::kInputs + o];
    __builtin_memcpy(rows.out[o] + whole * kLanes * size, part.out[o], rest * size);
  }
  return flags;
}

template <typename Program>
inline constexpr fused::RowFunction kRunRows = RunRows<Program>;

// Its context is the function, for who calls it for rows.
template <typename Program>
constexpr opw_kernel KernelOf() {
  return {OPW_ABI_VERSION,
          OPW_DETERMINISTIC | OPW_INPLACE,
          [](const opw_call* c) {
            return fused::SupportsTypes(c, Program::kInputs, Program::kOutputs, Program::kTypes);
          },
          [](const opw_call* c, void** state, int64_t*) {
            return fused::PrepareLayout(c, Program::kInputs, Program::kOutputs, state);
          },
          fused::ReleaseLayout,
          [](const opw_call* c) { return fused::RunLayout(c, RunRows<Program>); },
          &kRunRows<Program>};
}

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

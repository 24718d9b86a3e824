// argmax, argmin and cumsum of one instruction set. The includer defines OPWIRE_ISA.
#include <type_traits>
#include <utility>

#include "kernels/abi.h"
#include "kernels/ops/reduce/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::reduce::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// The value of nothing.
template <typename E>
constexpr E Least(Larger) {
  if constexpr (std::is_floating_point_v<E>)
    return static_cast<E>(-__builtin_inf());
  else
    return std::is_signed_v<E> ? static_cast<E>(E{1} << (sizeof(E) * 8 - 1)) : E{0};
}
template <typename E>
constexpr E Least(Smaller) {
  if constexpr (std::is_floating_point_v<E>)
    return static_cast<E>(__builtin_inf());
  else
    return static_cast<E>(~Least<E>(Larger()));
}

// The extreme first, then the first element that equals it: both passes are faster than one that
// carries indices.
template <typename S, typename Op>
int64_t Arg(const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  const S* const x = static_cast<const S*>(from);
  const E best = ReduceWith(x, n, Least<E>(Op()), Same(), Op());
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t lanes = n - i < kLanes ? n - i : kLanes;
    const Vec<E> v = lanes < kLanes ? Mem<S>::LoadN(x + i, lanes) : Mem<S>::Load(x + i);
    const Mask<E> found = best != best ? v != v : v == best;
    uint64_t words[kVectorBytes / 8], any = 0;
    StoreBytes(words, found);
    for (uint64_t w : words) any |= w;
    if (any == 0) continue;
    for (int64_t k = 0; k < lanes; ++k) {
      if (found[k] != 0) return i + k;
    }
  }
  return 0;
}

// Whether the element at `candidate` precedes the one at `best`: a NaN precedes all numbers; of
// equal elements the earlier one precedes.
template <typename S, bool kLargest>
bool Beyond(const void* candidate, const void* best) {
  const auto a = Mem<S>::LoadN(static_cast<const S*>(candidate), 1)[0],
             b = Mem<S>::LoadN(static_cast<const S*>(best), 1)[0];
  if (b != b) return false;
  return a != a || (kLargest ? a > b : a < b);
}

// The lanes moved up by kWidth, zeros below them.
template <typename E, int kWidth, int... kLane>
inline Vec<E> LanesUp(Vec<E> v, std::integer_sequence<int, kLane...>) {
  constexpr int kLanes = sizeof...(kLane);
  return __builtin_shuffle(v, Vec<E>{}, Mask<E>{(kLane < kWidth ? kLanes : kLane - kWidth)...});
}
// The sums of the lanes up to and with each.
template <typename E, int kWidth = 1>
inline Vec<E> PrefixSums(Vec<E> v) {
  constexpr int kLanes = Mem<E>::kLanes;
  if constexpr (kWidth == kLanes)
    return v;
  else
    return PrefixSums<E, kWidth * 2>(
        v + LanesUp<E, kWidth>(v, std::make_integer_sequence<int, kLanes>()));
}

// Floats by vectors; integers one by one, as an addition takes one cycle.
template <typename S>
void ScanRow(void* to, const void* from, int64_t n, void* sum) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  E carry = *static_cast<const E*>(sum);
  if constexpr (std::is_floating_point_v<E>) {
    constexpr int kLanes = Mem<S>::kLanes;
    const Mask<E> top = Mask<E>{} + (kLanes - 1);
    Vec<E> before = Splat(carry);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const Vec<E> sums = PrefixSums<E>(Mem<S>::Load(x + i));
      Mem<S>::Store(y + i, sums + before);
      before += __builtin_shuffle(sums, top);
    }
    carry = before[0];
    if (i < n) {
      const Vec<E> v = PrefixSums<E>(Mem<S>::LoadN(x + i, n - i)) + before;
      Mem<S>::StoreN(y + i, v, n - i);
      carry = v[n - i - 1];
    }
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = carry = static_cast<E>(carry + x[i]);
  }
  *static_cast<E*>(sum) = carry;
}

template <typename S>
void ScanColumns(void* to, const void* from, int64_t rows, int64_t columns, int64_t stride,
                 void* sums) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  for (int64_t j = 0; j < columns; j += kLanes) {
    const int64_t left = columns - j < kLanes ? columns - j : kLanes;
    const bool whole = left == kLanes;
    E* const carry = static_cast<E*>(sums) + j;
    Vec<E> sum = whole ? Mem<E>::Load(carry) : Mem<E>::LoadN(carry, left);
    const S* x = static_cast<const S*>(from) + j;
    S* y = static_cast<S*>(to) + j;
    for (int64_t r = 0; r < rows; ++r, x += stride, y += stride) {
      sum += whole ? Mem<S>::Load(x) : Mem<S>::LoadN(x, left);
      if (whole)
        Mem<S>::Store(y, sum);
      else
        Mem<S>::StoreN(y, sum, left);
    }
    if (whole)
      Mem<E>::Store(carry, sum);
    else
      Mem<E>::StoreN(carry, sum, left);
  }
}

template <typename S>
constexpr void SetArgs(ScanLoops* s, int type) {
  s->argmax[type] = {Arg<S, Larger>, Beyond<S, true>};
  s->argmin[type] = {Arg<S, Smaller>, Beyond<S, false>};
}
template <typename S>
constexpr void SetSums(ScanLoops* s, int type) {
  s->cumsum[type] = {ScanRow<S>, ScanColumns<S>, sizeof(typename Mem<S>::Compute)};
}
constexpr ScanLoops Scans() {
  ScanLoops s{};
  SetArgs<double>(&s, OPW_F64);
  SetArgs<float>(&s, OPW_F32);
  SetArgs<Half>(&s, OPW_F16);
  SetArgs<BFloat16>(&s, OPW_BF16);
  SetArgs<int64_t>(&s, OPW_I64);
  SetArgs<int32_t>(&s, OPW_I32);
  SetArgs<int16_t>(&s, OPW_I16);
  SetArgs<int8_t>(&s, OPW_I8);
  SetArgs<uint64_t>(&s, OPW_U64);
  SetArgs<uint32_t>(&s, OPW_U32);
  SetArgs<uint16_t>(&s, OPW_U16);
  SetArgs<uint8_t>(&s, OPW_U8);
  SetSums<double>(&s, OPW_F64);
  SetSums<float>(&s, OPW_F32);
  SetSums<Half>(&s, OPW_F16);
  SetSums<BFloat16>(&s, OPW_BF16);
  SetSums<uint64_t>(&s, OPW_I64);
  SetSums<uint64_t>(&s, OPW_U64);
  SetSums<uint32_t>(&s, OPW_I32);
  SetSums<uint32_t>(&s, OPW_U32);
  SetSums<uint16_t>(&s, OPW_I16);
  SetSums<uint16_t>(&s, OPW_U16);
  SetSums<uint8_t>(&s, OPW_I8);
  SetSums<uint8_t>(&s, OPW_U8);
  return s;
}
constexpr ScanLoops kScans = Scans();

}  // namespace
}  // namespace opwire::ops::reduce::OPWIRE_ISA

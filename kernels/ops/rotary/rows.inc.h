// Angles, and rows that are rotated by them, in the computing type. The includer defines
// OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/rotary/cpu_loops.h"
#include "kernels/ops/simd/math_by_lane.h"
#include "kernels/ops/simd/math_wide.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::rotary::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Each lane's neighbour in its pair.
inline F SwapPairs(F v) {
  const Vec<uint64_t> bits = BitCast<Vec<uint64_t>>(v);
  return BitCast<F>(bits << 32 | bits >> 32);
}
inline D SwapPairs(D v) {
#ifdef __AVX512F__
  return BitCast<D>(_mm512_permute_pd(BitCast<__m512d>(v), 0x55));
#else
  return BitCast<D>(_mm256_permute_pd(BitCast<__m256d>(v), 5));
#endif
}

template <typename S>
void Angles(void* cosines, void* sines, const void* frequencies, double position, int64_t n) {
  using E = typename Mem<S>::Compute;
  const E* const f = static_cast<const E*>(frequencies);
  const E at = static_cast<E>(position);
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    const Vec<E> angle = lanes.Load(f + i) * at;
    lanes.Store(static_cast<E*>(cosines) + i, Cos(angle));
    lanes.Store(static_cast<E*>(sines) + i, Sin(angle));
  });
}

template <typename S>
void Halves(void* to, const void* from, const void* cosines, const void* sines, int64_t n) {
  using E = typename Mem<S>::Compute;
  const int64_t half = n / 2;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  ForVectors<E>(half, [&](int64_t i, auto lanes) {
    const Vec<E> cosine = lanes.Load(static_cast<const E*>(cosines) + i),
                 sine = lanes.Load(static_cast<const E*>(sines) + i);
    const Vec<E> a = lanes.Load(x + i), b = lanes.Load(x + half + i);
    lanes.Store(y + i, a * cosine - b * sine);
    lanes.Store(y + half + i, b * cosine + a * sine);
  });
}

template <typename S>
void Neighbours(void* to, const void* from, const void* cosines, const void* sines, int64_t n) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    const Vec<E> v = lanes.Load(x + i);
    lanes.Store(y + i, v * lanes.Load(static_cast<const E*>(cosines) + i) +
                           SwapPairs(v) * lanes.Load(static_cast<const E*>(sines) + i));
  });
}

template <typename S>
constexpr void Set(RotaryLoops* l, int type) {
  l->angles[type] = Angles<S>;
  l->halves[type] = Halves<S>;
  l->neighbours[type] = Neighbours<S>;
}
constexpr RotaryLoops Loops() {
  RotaryLoops l{};
  Set<double>(&l, OPW_F64);
  Set<float>(&l, OPW_F32);
  Set<Half>(&l, OPW_F16);
  Set<BFloat16>(&l, OPW_BF16);
  return l;
}
constexpr RotaryLoops kRotaryLoops = Loops();

}  // namespace
}  // namespace opwire::ops::rotary::OPWIRE_ISA

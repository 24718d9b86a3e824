// The products of one instruction set: blocks of rows times blocks of vectors, held in registers
// over the whole sum. The includer defines OPWIRE_ISA.
#include <type_traits>

#include "kernels/abi.h"
#include "kernels/ops/matmul/small.h"
#include "kernels/ops/simd/math.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::matmul::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

template <typename V>
inline V MultiplyAdd(V a, V b, V sum) {
  if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(V{}[0])>>)
    return Fma(a, b, sum);
  else
    return a * b + sum;
}

// kRows rows of kVectors vectors; the last vector has `rest` lanes where it is not whole (0:
// whole).
template <typename E, int kRows, int kVectors>
inline void Block(E* z, const E* x, const E* y, int64_t k, int64_t x_m, int64_t x_k, int64_t y_k,
                  int64_t z_m, int64_t rest) {
  constexpr int kLanes = Mem<E>::kLanes;
  Vec<E> sums[kRows][kVectors] = {};
  for (int64_t l = 0; l < k; ++l) {
    Vec<E> row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const E* const from = y + l * y_k + v * kLanes;
      row[v] = v == kVectors - 1 && rest != 0 ? Mem<E>::LoadN(from, rest) : Mem<E>::Load(from);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec<E> factor = Splat(x[r * x_m + l * x_k]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = MultiplyAdd(factor, row[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      E* const to = z + r * z_m + v * kLanes;
      if (v == kVectors - 1 && rest != 0)
        Mem<E>::StoreN(to, sums[r][v], rest);
      else
        Mem<E>::Store(to, sums[r][v]);
    }
  }
}

template <typename E, int kVectors>
void Columns(E* z, const E* x, const E* y, int64_t m, int64_t k, int64_t x_m, int64_t x_k,
             int64_t y_k, int64_t z_m, int64_t rest) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    Block<E, 4, kVectors>(z + i * z_m, x + i * x_m, y, k, x_m, x_k, y_k, z_m, rest);
  for (; i < m; ++i)
    Block<E, 1, kVectors>(z + i * z_m, x + i * x_m, y, k, x_m, x_k, y_k, z_m, rest);
}

template <typename E>
void SmallMatmul(void* z, const void* x, const void* y, int64_t m, int64_t n, int64_t k,
                 int64_t x_m, int64_t x_k, int64_t y_k, int64_t z_m) {
  constexpr int kLanes = Mem<E>::kLanes;
  E* const to = static_cast<E*>(z);
  const E* const a = static_cast<const E*>(x);
  const E* const b = static_cast<const E*>(y);
  for (int64_t j = 0; j < n;) {
    const int64_t left = n - j;
    if (left > kLanes) {
      const int64_t rest = left < 2 * kLanes ? left - kLanes : 0;
      Columns<E, 2>(to + j, a, b + j, m, k, x_m, x_k, y_k, z_m, rest);
      j += 2 * kLanes;
    } else {
      Columns<E, 1>(to + j, a, b + j, m, k, x_m, x_k, y_k, z_m, left < kLanes ? left : 0);
      j += kLanes;
    }
  }
}

template <typename S, typename R>
void Dot(void* z, const void* x, const void* y, int64_t k) {
  using C = typename Mem<S>::Compute;
  const S* const a = static_cast<const S*>(x);
  const S* const b = static_cast<const S*>(y);
  constexpr int64_t kAhead = 4096 / static_cast<int64_t>(sizeof(S));
  const auto product = [&](int64_t l, auto lanes) {
    // The processor's own prefetch ends at a page.
    __builtin_prefetch(a + l + kAhead);
    __builtin_prefetch(b + l + kAhead);
    return lanes.Load(a + l) * lanes.Load(b + l);
  };
  const C sum = ReduceVectors(k, C{0}, product, Plus());
  Mem<R>::StoreN(static_cast<R*>(z), Splat(sum), 1);
}
template <typename S>
void DotEnd(void* z, const void* x, int64_t k) {
  using C = typename Mem<S>::Compute;
  const C sum = ReduceWith(static_cast<const C*>(x), k, C{0}, Same(), Plus());
  Mem<S>::StoreN(static_cast<S*>(z), Splat(sum), 1);
}

template <typename S>
constexpr void FillDot(MatmulLoops& t, int type) {
  t.dot[type] = Dot<S, S>;
  t.dot_part[type] = Dot<S, typename Mem<S>::Compute>;
  t.dot_end[type] = DotEnd<S>;
}
constexpr MatmulLoops Loops() {
  MatmulLoops t{};
  FillDot<double>(t, OPW_F64);
  FillDot<float>(t, OPW_F32);
  FillDot<Half>(t, OPW_F16);
  FillDot<BFloat16>(t, OPW_BF16);
  t.by_type[OPW_F64] = SmallMatmul<double>;
  t.by_type[OPW_F32] = SmallMatmul<float>;
  t.by_type[OPW_I64] = t.by_type[OPW_U64] = SmallMatmul<uint64_t>;
  t.by_type[OPW_I32] = t.by_type[OPW_U32] = SmallMatmul<uint32_t>;
  return t;
}
constexpr MatmulLoops kMatmulLoops = Loops();

}  // namespace
}  // namespace opwire::ops::matmul::OPWIRE_ISA

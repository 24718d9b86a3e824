// Sums, means, products and extremes of one instruction set. The includer defines OPWIRE_ISA.
#include <type_traits>

#include "kernels/abi.h"
#include "kernels/ops/reduce/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::reduce::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

template <typename E>
constexpr E Least() {
  if constexpr (std::is_floating_point_v<E>)
    return static_cast<E>(-__builtin_inf());
  else
    return std::is_signed_v<E> ? static_cast<E>(E{1} << (sizeof(E) * 8 - 1)) : E{0};
}
template <typename E>
constexpr E Greatest() {
  if constexpr (std::is_floating_point_v<E>)
    return static_cast<E>(__builtin_inf());
  else
    return static_cast<E>(~Least<E>());
}

struct SumOp : Plus {
  static constexpr bool kMean = false;
  template <typename E>
  static constexpr E Start() {
    return E{0};
  }
};
struct MeanOp : SumOp {
  static constexpr bool kMean = true;
};
struct ProdOp : Times {
  static constexpr bool kMean = false;
  template <typename E>
  static constexpr E Start() {
    return E{1};
  }
};
struct MaxOp : Larger {
  static constexpr bool kMean = false;
  template <typename E>
  static constexpr E Start() {
    return Least<E>();
  }
};
struct MinOp : Smaller {
  static constexpr bool kMean = false;
  template <typename E>
  static constexpr E Start() {
    return Greatest<E>();
  }
};

// One value of the computing type as an element of R.
template <typename R, typename E>
inline void StoreOne(R* y, E v) {
  Mem<R>::StoreN(y, Splat(v), 1);
}

template <typename Op, typename S, typename R>
void Rows(void* y, const void* x, int64_t rows, int64_t n, double divisor) {
  using E = typename Mem<S>::Compute;
  for (int64_t r = 0; r < rows; ++r) {
    E v = ReduceWith(static_cast<const S*>(x) + r * n, n, Op::template Start<E>(), Same(), Op());
    if constexpr (Op::kMean) v = v / static_cast<E>(divisor);
    StoreOne(static_cast<R*>(y) + r, v);
  }
}

// Columns in registers; sums of 64 rows are added up among themselves first, so that error grows
// with a 64th of the rows.
template <typename Op, typename S, typename R>
void Columns(void* to, const void* from, int64_t rows, int64_t columns, int64_t stride,
             double divisor) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes, kVectors = 4;
  constexpr int64_t kRows = 64;
  const Op step;
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    Vec<E> totals[kVectors];
    for (Vec<E>& t : totals) t = Splat(Op::template Start<E>());
    const int64_t left = columns - j;
    for (int64_t first = 0; first < rows; first += kRows) {
      Vec<E> sums[kVectors];
      for (Vec<E>& s : sums) s = Splat(Op::template Start<E>());
      for (int64_t r = first; r < rows && r < first + kRows; ++r) {
        const S* const x = static_cast<const S*>(from) + r * stride + j;
        for (int k = 0; k < kVectors; ++k) {
          if (left >= (k + 1) * kLanes)
            sums[k] = step(sums[k], Mem<S>::Load(x + k * kLanes));
          else if (left > k * kLanes)
            sums[k] = step(sums[k], Mem<S>::LoadN(x + k * kLanes, left - k * kLanes));
        }
      }
      for (int k = 0; k < kVectors; ++k) totals[k] = step(totals[k], sums[k]);
    }
    R* const y = static_cast<R*>(to) + j;
    for (int k = 0; k < kVectors; ++k) {
      if constexpr (Op::kMean) totals[k] = totals[k] / static_cast<E>(divisor);
      if (left >= (k + 1) * kLanes)
        Mem<R>::Store(y + k * kLanes, totals[k]);
      else if (left > k * kLanes)
        Mem<R>::StoreN(y + k * kLanes, totals[k], left - k * kLanes);
    }
  }
}

template <typename Op, typename S>
constexpr void Set(ReduceLoops* f, int type) {
  using E = typename Mem<S>::Compute;
  f->partial_bytes[type] = sizeof(E);
  f->rows[type] = Rows<Op, S, S>;
  using Partial = std::conditional_t<Op::kMean, SumOp, Op>;
  f->partial[type] = Rows<Partial, S, E>;
  f->finish[type] = Rows<Op, E, S>;
  f->columns[type] = Columns<Op, S, S>;
  f->partial_columns[type] = Columns<Partial, S, E>;
  f->finish_columns[type] = Columns<Op, E, S>;
}

template <typename Op>
constexpr ReduceLoops Floats(const char* op) {
  ReduceLoops f{};
  f.op = op;
  Set<Op, double>(&f, OPW_F64);
  Set<Op, float>(&f, OPW_F32);
  Set<Op, Half>(&f, OPW_F16);
  Set<Op, BFloat16>(&f, OPW_BF16);
  return f;
}
template <typename Op>
constexpr void SetUnsigned(ReduceLoops* f) {
  Set<Op, uint64_t>(f, OPW_U64);
  Set<Op, uint32_t>(f, OPW_U32);
  Set<Op, uint16_t>(f, OPW_U16);
  Set<Op, uint8_t>(f, OPW_U8);
}
// For ops that wrap: signed integers use the loops of unsigned ones.
template <typename Op>
constexpr ReduceLoops Wrapping(const char* op) {
  ReduceLoops f = Floats<Op>(op);
  SetUnsigned<Op>(&f);
  Set<Op, uint64_t>(&f, OPW_I64);
  Set<Op, uint32_t>(&f, OPW_I32);
  Set<Op, uint16_t>(&f, OPW_I16);
  Set<Op, uint8_t>(&f, OPW_I8);
  return f;
}
template <typename Op>
constexpr ReduceLoops Extremes(const char* op) {
  ReduceLoops f = Floats<Op>(op);
  SetUnsigned<Op>(&f);
  Set<Op, int64_t>(&f, OPW_I64);
  Set<Op, int32_t>(&f, OPW_I32);
  Set<Op, int16_t>(&f, OPW_I16);
  Set<Op, int8_t>(&f, OPW_I8);
  Set<Op, Boolean>(&f, OPW_BOOL);
  return f;
}
template <typename Op>
constexpr ReduceLoops Logical(const char* op) {
  ReduceLoops f{};
  f.op = op;
  Set<Op, Boolean>(&f, OPW_BOOL);
  return f;
}

// any and all of bytes 0 and 1, which are also the values of nothing.
struct AnyOp : MaxOp {};
struct AllOp : MinOp {
  template <typename E>
  static constexpr E Start() {
    return E{1};
  }
};

constexpr ReduceLoops kReductions[] = {
    Wrapping<SumOp>("sum"),  Floats<MeanOp>("mean"),  Wrapping<ProdOp>("prod"),
    Extremes<MaxOp>("amax"), Extremes<MinOp>("amin"), Logical<AnyOp>("any"),
    Logical<AllOp>("all"),
};
static_assert(sizeof(kReductions) == kReduceCount * sizeof(ReduceLoops));

}  // namespace
}  // namespace opwire::ops::reduce::OPWIRE_ISA

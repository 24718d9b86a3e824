// Softmax and its gradient, of a row and of neighbouring columns, in the computing type. The
// includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/simd/reduction.h"
#include "kernels/ops/softmax/cpu_loops.h"

namespace opwire::ops::softmax::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

template <typename E>
inline E LogOne(E v) {
  return Log(Splat(v))[0];
}

// Processors take many times as long for subnormal numbers, and for all later products of them. A
// well-trained network has mostly such gradients. So products of exponentials are zero if they
// would be subnormal. The least normal number, and its logarithm rounded towards zero:
template <typename E>
inline constexpr E kLeastNormal = sizeof(E) == 8 ? 0x1p-1022 : 0x1p-126;
template <typename E>
inline constexpr E kLogOfLeast = sizeof(E) == 8 ? -708.396 : -87.3365;

// exp(v) for sums of 1 and more. If v is less than kLogOfLeast it adds nothing to such a sum.
template <typename V>
inline V Term(V v) {
  return ExpFrom(Splat(kLogOfLeast<LaneOf<V>>), v);
}
// A factor of exponentials, the least v for which they are computed, and the least exponential
// whose product with the factor is a normal number (to a thousandth).
template <typename V>
struct Factor {
  explicit Factor(V f) : factor(f) {
    using E = LaneOf<V>;
    const V magnitude = Abs(f);
    const auto small = magnitude <= 1;
    from = small ? Splat(kLogOfLeast<E>) : Splat(kLogOfNothing<E>);
    least = (small ? Splat(kLeastNormal<E> * static_cast<E>(1.001)) : Splat(kLeastNormal<E>)) /
            magnitude;
  }
  V factor, from, least;
};
template <typename V>
inline V NormalExp(V v, const Factor<V>& by) {
  const V e = ExpFrom(by.from, v);
  return (e < by.least ? V{} : e) * by.factor;
}

// The largest element; a NaN makes everything NaN later, by its exponential.
template <typename S>
inline typename Mem<S>::Compute Most(const S* x, int64_t n) {
  using E = typename Mem<S>::Compute;
  return ReduceWith(x, n, static_cast<E>(-__builtin_inf()), Same(), Larger());
}
template <typename S>
inline typename Mem<S>::Compute SumExp(const S* x, int64_t n, typename Mem<S>::Compute most) {
  using E = typename Mem<S>::Compute;
  return ReduceWith(
      x, n, E{0}, [most](Vec<E> v) { return Term(v - most); }, Plus());
}

template <typename S>
void Softmax(void* to, const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n);
  const Factor<Vec<E>> factor(Splat(E{1} / SumExp(x, n, most)));
  Map(y, x, n, [=](Vec<E> v) { return NormalExp(v - most, factor); });
}

template <typename S>
void LogSoftmax(void* to, const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n), log_sum = LogOne(SumExp(x, n, most));
  Map(static_cast<S*>(to), x, n, [=](Vec<E> v) { return (v - most) - log_sum; });
}

// Columns in registers. The exponentials of 64 rows are added to each other first, so that the
// error grows with a 64th of the rows.
template <typename S, bool kLog>
void SoftmaxColumns(void* to, const void* from, int64_t n, int64_t columns, int64_t stride) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes, kVectors = 4;
  constexpr int64_t kRows = 64;
  const Larger larger;
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    const S* const x = static_cast<const S*>(from) + j;
    S* const y = static_cast<S*>(to) + j;
    // Calls f(k, vector, its address) for the vectors of row r.
    const auto each = [&](int64_t r, const auto& f) {
      for (int k = 0; k < kVectors; ++k) {
        const int64_t at = r * stride + k * kLanes, left = columns - j - k * kLanes;
        if (left >= kLanes)
          f(k, Mem<S>::Load(x + at), at, int64_t{kLanes});
        else if (left > 0)
          f(k, Mem<S>::LoadN(x + at, left), at, left);
      }
    };
    Vec<E> most[kVectors], totals[kVectors] = {};
    for (Vec<E>& m : most) m = Splat(static_cast<E>(-__builtin_inf()));
    for (int64_t r = 0; r < n; ++r)
      each(r, [&](int k, Vec<E> v, int64_t, int64_t) { most[k] = larger(most[k], v); });
    for (int64_t first = 0; first < n; first += kRows) {
      Vec<E> sums[kVectors] = {};
      for (int64_t r = first; r < n && r < first + kRows; ++r) {
        each(r, [&](int k, Vec<E> v, int64_t, int64_t) { sums[k] += Term(v - most[k]); });
      }
      for (int k = 0; k < kVectors; ++k) totals[k] += sums[k];
    }
    for (Vec<E>& t : totals) t = kLog ? Log(t) : 1 / t;
    const Factor<Vec<E>> factors[] = {Factor(totals[0]), Factor(totals[1]), Factor(totals[2]),
                                      Factor(totals[3])};
    static_assert(sizeof(factors) / sizeof(factors[0]) == kVectors);
    for (int64_t r = 0; r < n; ++r) {
      each(r, [&](int k, Vec<E> v, int64_t at, int64_t lanes) {
        const Vec<E> result = kLog ? (v - most[k]) - totals[k] : NormalExp(v - most[k], factors[k]);
        if (lanes == kLanes)
          Mem<S>::Store(y + at, result);
        else
          Mem<S>::StoreN(y + at, result, lanes);
      });
    }
  }
}

// An element's term in the gradient's sum, and the element's gradient from that sum.
template <bool kLog, typename V>
inline V Summand(V grad, V y) {
  if constexpr (kLog)
    return grad;
  else
    return grad * y;
}
template <bool kLog, typename V>
inline V GradOf(V grad, V y, V sum) {
  if constexpr (kLog)
    return grad - Exp(y) * sum;
  else
    return y * (grad - sum);
}

template <typename S, bool kLog>
void SoftmaxBackward(void* to, const void* from, const void* result, int64_t n) {
  using E = typename Mem<S>::Compute;
  S* const grad_x = static_cast<S*>(to);
  const S* const grad = static_cast<const S*>(from);
  const S* const y = static_cast<const S*>(result);
  const Vec<E> sum = Splat(ReduceVectors(
      n, E{0},
      [&](int64_t i, auto lanes) { return Summand<kLog>(lanes.Load(grad + i), lanes.Load(y + i)); },
      Plus()));
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    lanes.Store(grad_x + i, GradOf<kLog>(lanes.Load(grad + i), lanes.Load(y + i), sum));
  });
}

// Values of 64 rows are added to each other first.
template <typename S, bool kLog>
void SoftmaxBackwardDown(void* to, const void* from, const void* result, int64_t n, int64_t columns,
                         int64_t stride) {
  using E = typename Mem<S>::Compute;
  constexpr int64_t kRows = 64;
  S* const grad_x = static_cast<S*>(to);
  const S* const grad = static_cast<const S*>(from);
  const S* const y = static_cast<const S*>(result);
  E totals[kSoftmaxColumns] = {};
  for (int64_t first = 0; first < n; first += kRows) {
    E sums[kSoftmaxColumns] = {};
    for (int64_t r = first; r < n && r < first + kRows; ++r) {
      const int64_t row = r * stride;
      ForVectors<E>(columns, [&](int64_t j, auto lanes) {
        lanes.Store(sums + j, lanes.Load(sums + j) + Summand<kLog>(lanes.Load(grad + row + j),
                                                                   lanes.Load(y + row + j)));
      });
    }
    ForVectors<E>(columns, [&](int64_t j, auto lanes) {
      lanes.Store(totals + j, lanes.Load(totals + j) + lanes.Load(sums + j));
    });
  }
  for (int64_t r = 0; r < n; ++r) {
    const int64_t row = r * stride;
    ForVectors<E>(columns, [&](int64_t j, auto lanes) {
      lanes.Store(grad_x + row + j, GradOf<kLog>(lanes.Load(grad + row + j),
                                                 lanes.Load(y + row + j), lanes.Load(totals + j)));
    });
  }
}

template <typename S>
double LogSumExp(const void* from, int64_t n) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  const E most = Most(x, n);
  return static_cast<double>(most) + static_cast<double>(LogOne(SumExp(x, n, most)));
}

template <typename S>
void ExpScaled(void* to, const void* from, int64_t n, double log_sum, double scale) {
  using E = typename Mem<S>::Compute;
  const E shift = static_cast<E>(log_sum);
  const Factor<Vec<E>> factor(Splat(static_cast<E>(scale)));
  Map(static_cast<S*>(to), static_cast<const S*>(from), n,
      [=](Vec<E> v) { return NormalExp(v - shift, factor); });
}

// Elements of short rows, of up to a vector's lanes: the same element of each row in neighbouring
// lanes.
template <typename S>
struct ShortRows {
  using E = typename Mem<S>::Compute;
  static constexpr int kLanes = Mem<S>::kLanes;
  Vec<E> at[kSoftmaxShortRow];

  void Load(const S* x, int64_t rows, int64_t n) {
    E flat[kSoftmaxShortRow * kLanes];
    ForVectors<E>(rows * n,
                  [&](int64_t i, auto lanes) { lanes.Store(flat + i, lanes.Load(x + i)); });
    for (int64_t i = rows * n; i < kLanes * n; ++i) flat[i] = 0;
    for (int64_t k = 0; k < n; ++k) {
      E lanes[kLanes];
      for (int r = 0; r < kLanes; ++r) lanes[r] = flat[r * n + k];
      at[k] = Mem<E>::Load(lanes);
    }
  }
  void Store(S* y, int64_t rows, int64_t n) const {
    E flat[kSoftmaxShortRow * kLanes];
    for (int64_t k = 0; k < n; ++k) {
      E lanes[kLanes];
      StoreBytes(lanes, at[k]);
      for (int r = 0; r < kLanes; ++r) flat[r * n + k] = lanes[r];
    }
    ForVectors<E>(rows * n,
                  [&](int64_t i, auto lanes) { lanes.Store(y + i, lanes.Load(flat + i)); });
  }
};

// Calls f(rows, position of the first row, number of rows, their largest elements, sums of
// exp(element - largest)) for all rows, as many as fit at a time.
template <typename S, typename F>
inline void ForShortRows(const void* from, int64_t rows, int64_t n, const F& f) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  const Larger larger;
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t count = rows - first < kLanes ? rows - first : kLanes;
    ShortRows<S> x;
    x.Load(static_cast<const S*>(from) + first * n, count, n);
    Vec<E> most = Splat(static_cast<E>(-__builtin_inf())), sum{};
    for (int64_t k = 0; k < n; ++k) most = larger(most, x.at[k]);
    for (int64_t k = 0; k < n; ++k) sum += Term(x.at[k] - most);
    f(x, first, count, most, sum);
  }
}

template <typename S, bool kLog>
void SoftmaxOfRows(void* to, const void* from, int64_t rows, int64_t n) {
  using E = typename Mem<S>::Compute;
  ForShortRows<S>(from, rows, n,
                  [&](ShortRows<S>& x, int64_t first, int64_t count, Vec<E> most, Vec<E> sum) {
                    const Vec<E> last = kLog ? Log(sum) : 1 / sum;
                    const Factor<Vec<E>> by(last);
                    for (int64_t k = 0; k < n; ++k)
                      x.at[k] = kLog ? (x.at[k] - most) - last : NormalExp(x.at[k] - most, by);
                    x.Store(static_cast<S*>(to) + first * n, count, n);
                  });
}

template <typename S>
void LogSumExpOfRows(double* log_sums, const void* from, int64_t rows, int64_t n) {
  using E = typename Mem<S>::Compute;
  ForShortRows<S>(from, rows, n,
                  [&](const ShortRows<S>&, int64_t first, int64_t count, Vec<E> most, Vec<E> sum) {
                    const Vec<E> log = Log(sum);
                    for (int r = 0; r < count; ++r)
                      log_sums[first + r] =
                          static_cast<double>(most[r]) + static_cast<double>(log[r]);
                  });
}

template <typename S>
void ExpScaledOfRows(void* to, const void* from, int64_t rows, int64_t n, const double* log_sums,
                     const double* scales) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t count = rows - first < kLanes ? rows - first : kLanes;
    ShortRows<S> x;
    x.Load(static_cast<const S*>(from) + first * n, count, n);
    E shifts[kLanes] = {}, factors[kLanes] = {};
    for (int64_t r = 0; r < count; ++r) {
      shifts[r] = static_cast<E>(log_sums[first + r]);
      factors[r] = static_cast<E>(scales[first + r]);
    }
    const Vec<E> shift = Mem<E>::Load(shifts);
    const Factor<Vec<E>> factor(Mem<E>::Load(factors));
    for (int64_t k = 0; k < n; ++k) x.at[k] = NormalExp(x.at[k] - shift, factor);
    x.Store(static_cast<S*>(to) + first * n, count, n);
  }
}

template <typename S>
constexpr void Set(SoftmaxRows* r, int type) {
  r->softmax[type] = Softmax<S>;
  r->log_softmax[type] = LogSoftmax<S>;
  r->softmax_columns[type] = SoftmaxColumns<S, false>;
  r->log_softmax_columns[type] = SoftmaxColumns<S, true>;
  r->softmax_backward[type] = SoftmaxBackward<S, false>;
  r->log_softmax_backward[type] = SoftmaxBackward<S, true>;
  r->softmax_backward_columns[type] = SoftmaxBackwardDown<S, false>;
  r->log_softmax_backward_columns[type] = SoftmaxBackwardDown<S, true>;
  r->log_sum_exp[type] = LogSumExp<S>;
  r->exp[type] = ExpScaled<S>;
  r->short_softmax[type] = SoftmaxOfRows<S, false>;
  r->short_log_softmax[type] = SoftmaxOfRows<S, true>;
  r->short_log_sum_exp[type] = LogSumExpOfRows<S>;
  r->short_exp[type] = ExpScaledOfRows<S>;
}

constexpr SoftmaxRows Rows() {
  SoftmaxRows r{};
  Set<double>(&r, OPW_F64);
  Set<float>(&r, OPW_F32);
  Set<Half>(&r, OPW_F16);
  Set<BFloat16>(&r, OPW_BF16);
  return r;
}
constexpr SoftmaxRows kSoftmaxRows = Rows();

}  // namespace
}  // namespace opwire::ops::softmax::OPWIRE_ISA

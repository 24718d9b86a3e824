// Reductions, one result after the other. Floating sums and products below f64 are computed in f64
// and rounded once.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/reduce.h"
#include "kernels/ops/reduce/reduced_axes.h"

namespace opwire::ops::reduce {
namespace {

template <typename C>
using SumType = std::conditional_t<std::is_floating_point_v<C>, double, C>;

// Whether `a` precedes `b` as the extreme: a NaN precedes all numbers.
template <typename C>
bool Beyond(C a, C b, bool largest) {
  if (b != b) return false;
  if (a != a) return true;
  return largest ? a > b : a < b;
}

// Walks the reduced axes (one tensor) for each result, and at the same time the kept ones.
template <typename F>
void ForEachResult(const opw_call* c, const ReducedAxes& f, const F& reduction) {
  ParallelFor(c, f.kept, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, f.reduced)),
              [&](int64_t begin, int64_t end) {
                Walk<2> kept(f.kept_rank, f.kept_shape);
                for (int a = 0; a < f.kept_rank; ++a) {
                  kept.SetStride(0, a, f.result_strides[a]);
                  kept.SetStride(1, a, f.kept_strides[a]);
                }
                Walk<1> reduced(f.folded_rank, f.folded_shape);
                for (int a = 0; a < f.folded_rank; ++a)
                  reduced.SetStride(0, a, f.folded_strides[a]);
                kept.Start(begin);
                for (int64_t i = begin; i < end; ++i, kept.Next()) {
                  if (f.reduced > 0) reduced.Start(0);
                  reduction(kept.offset(0), kept.offset(1), reduced);
                }
              });
}

// Reduces by value = step(value, element), from start(), then stores finish(value).
template <typename T, typename A, typename Step, typename Finish>
void Reduce(const opw_call* c, A start, const Step& step, const Finish& finish) {
  const ReducedAxes f = ReducedAxesOfDims(c);
  const void* const x = Operand(c, 0).data;
  void* const y = c->results[0].data;
  ForEachResult(c, f, [&](int64_t to, int64_t from, Walk<1> reduced) {
    A value = start;
    for (int64_t i = 0; i < f.reduced && !StoppedAt(c, i); ++i, reduced.Next()) {
      value = step(value, Load<T>(x, from + reduced.offset(0)), i);
    }
    Store<T>(y, to, finish(value, f.reduced));
  });
}

int Sum(const opw_call* c) {
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using A = SumType<ComputeOf<T>>;
    Reduce<T>(
        c, A{0}, [](A sum, A v, int64_t) { return Plus<A>(sum, v); },
        [](A sum, int64_t) { return sum; });
  });
  return OPW_OK;
}

int Mean(const opw_call* c) {
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      Reduce<T>(
          c, 0.0, [](double sum, double v, int64_t) { return sum + v; },
          [](double sum, int64_t n) { return sum / static_cast<double>(n); });
    }
  });
  return OPW_OK;
}

int Prod(const opw_call* c) {
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using A = SumType<ComputeOf<T>>;
    Reduce<T>(
        c, A{1}, [](A product, A v, int64_t) { return Times<A>(product, v); },
        [](A product, int64_t) { return product; });
  });
  return OPW_OK;
}

template <bool kLargest>
int Extreme(const opw_call* c) {
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    Reduce<T>(
        c, C{0},
        [](C best, C v, int64_t i) { return i == 0 || Beyond(v, best, kLargest) ? v : best; },
        [](C best, int64_t) { return best; });
  });
  return OPW_OK;
}

template <bool kAny>
int Logical(const opw_call* c) {
  Reduce<Bool>(
      c, !kAny, [](bool so_far, bool v, int64_t) { return kAny ? so_far || v : so_far && v; },
      [](bool value, int64_t) { return value; });
  return OPW_OK;
}

template <bool kLargest>
int ArgExtreme(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const ReducedAxes f = ReducedAxesOfDim(c);
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    ForEachResult(c, f, [&](int64_t to, int64_t from, Walk<1> reduced) {
      C best{};
      int64_t at = 0;
      for (int64_t i = 0; i < f.reduced && !StoppedAt(c, i); ++i, reduced.Next()) {
        const C v = Load<T>(x.data, from + reduced.offset(0));
        if (i == 0 || Beyond(v, best, kLargest)) {
          best = v;
          at = i;
        }
      }
      Store<int64_t>(c->results[0].data, to, at);
    });
  });
  return OPW_OK;
}

int Cumsum(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  bool reduction[OPW_MAX_RANK] = {};
  reduction[dim] = true;
  const ReducedAxes from(
      x, y, reduction,
      /*keepdim=*/true);  // y has x's shape, so its strides of the kept axes are the result's
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using A = SumType<ComputeOf<T>>;
    ForEachResult(c, from, [&](int64_t to, int64_t start, const Walk<1>&) {
      A sum{0};
      for (int64_t i = 0; i < from.reduced && !StoppedAt(c, i); ++i) {
        sum = Plus<A>(sum, Load<T>(x.data, start + i * x.strides[dim]));
        Store<T>(y.data, to + i * y.strides[dim], sum);
      }
    });
  });
  return OPW_OK;
}

}  // namespace

const char* SupportsReductionOfSomething(const opw_call* c) {
  const ReducedAxes f = ReducedAxesOfDims(c);
  return f.reduced == 0 && f.kept > 0 ? "an extent of 0 has no largest or smallest element"
                                      : nullptr;
}

const char* SupportsArgOfSomething(const opw_call* c) {
  const ReducedAxes f = ReducedAxesOfDim(c);
  return f.reduced == 0 && f.kept > 0 ? "an extent of 0 has no largest or smallest element"
                                      : nullptr;
}

void AddReduceReference(VariantTable& table) {
  const auto add = [&](const char* op, int (*run)(const opw_call*),
                       const char* (*supports)(const opw_call*) = nullptr) {
    AddReference(table, op, {OPW_ABI_VERSION, OPW_DETERMINISTIC, supports, nullptr, nullptr, run});
  };
  add("sum", Sum);
  add("mean", Mean);
  add("prod", Prod);
  add("amax", Extreme<true>, SupportsReductionOfSomething);
  add("amin", Extreme<false>, SupportsReductionOfSomething);
  add("any", Logical<true>);
  add("all", Logical<false>);
  add("argmax", ArgExtreme<true>, SupportsArgOfSomething);
  add("argmin", ArgExtreme<false>, SupportsArgOfSomething);
  add("cumsum", Cumsum);
}

}  // namespace opwire::ops::reduce

// Operations of reductions: their state, how it takes an element, how two are joined, and the
// result of a state.
#include "kernels/ops/gpu/rows.cuh"
#include "kernels/ops/reduce/gpu_params.h"

namespace opw::reduce {

// Integers add and multiply as unsigned integers of their width or of 32 bits, whose low bits are
// the wrapped result.
template <typename T, bool kInteger = !kIsFloat<ComputeOf<T>>>
struct Accumulator {
  using Sum = ComputeOf<T>;
  using Product = f64;  // so that a partial product does not overflow sooner than the whole
};
template <typename T>
struct Accumulator<T, true> {
  using Sum = RawOf<typename BitsOfSize<sizeof(T) <= 4 ? 4 : 8>::Type>;
  using Product = Sum;
};

template <typename T>
struct SumOf {
  using State = typename Accumulator<T>::Sum;
  using Element = T;
  using Out = T;
  static constexpr bool kArg = false;
  static OPW_DEVICE State Identity() { return 0; }
  static OPW_DEVICE void Take(State& s, ComputeOf<T> v, i64) { s += static_cast<State>(v); }
  __device__ State operator()(State a, State b) const { return a + b; }
  static OPW_DEVICE Out Finish(State s, i64) { return Store<T>(s); }
};
template <typename T>
struct MeanOf : SumOf<T> {
  using State = typename SumOf<T>::State;
  static OPW_DEVICE T Finish(State s, i64 n) { return Store<T>(s / static_cast<State>(n)); }
};
template <typename T>
struct ProdOf {
  using State = typename Accumulator<T>::Product;
  using Element = T;
  using Out = T;
  static constexpr bool kArg = false;
  static OPW_DEVICE State Identity() { return 1; }
  static OPW_DEVICE void Take(State& s, ComputeOf<T> v, i64) { s *= static_cast<State>(v); }
  __device__ State operator()(State a, State b) const { return a * b; }
  static OPW_DEVICE Out Finish(State s, i64) { return Store<T>(s); }
};

// The value that every other value precedes.
template <typename C, bool kLargest>
OPW_DEVICE C Worst() {
  if constexpr (kIsFloat<C>)
    return kLargest ? -Infinity<C>() : Infinity<C>();
  else
    return kLargest ? Limits<C>::kMin : Limits<C>::kMax;
}
// Values narrower than a register are kept as an integer of 32 bits; otherwise they are converted
// at each step.
template <typename C, bool kNarrow = (sizeof(C) < 4)>
struct Kept {
  using Type = C;
};
template <typename C>
struct Kept<C, true> {
  using Type = i32;
};
template <>
struct Kept<bool, true> {
  using Type = u32;
};
template <typename T, bool kLargest>
struct ExtremeOf {
  using State = typename Kept<ComputeOf<T>>::Type;
  using Element = T;
  using Out = T;
  static constexpr bool kArg = false;
  static OPW_DEVICE State Identity() { return Worst<State, kLargest>(); }
  static OPW_DEVICE void Take(State& s, ComputeOf<T> v, i64) {
    s = ExtremeOf()(s, static_cast<State>(v));
  }
  __device__ State operator()(State a, State b) const {
    if constexpr (kLargest)
      return Max()(a, b);
    else
      return Min()(a, b);
  }
  static OPW_DEVICE Out Finish(State s, i64) { return Store<T>(static_cast<ComputeOf<T>>(s)); }
};

// A value and its index; -1 if there is none.
template <typename C>
struct Found {
  C value;
  i64 index;
};
using opw::ShuffleXor;
template <typename C>
OPW_DEVICE Found<C> ShuffleXor(const Found<C>& v, int mask) {
  return {opw::ShuffleXor(v.value, mask), opw::ShuffleXor(v.index, mask)};
}
template <typename C>
OPW_DEVICE Found<C> ShuffleFrom(const Found<C>& v, int lane) {
  return {opw::ShuffleFrom(v.value, lane), opw::ShuffleFrom(v.index, lane)};
}

template <typename T, bool kLargest>
struct ArgOf {
  using C = ComputeOf<T>;
  using State = Found<C>;
  using Element = T;
  using Out = i64;
  static constexpr bool kArg = true;
  // A NaN precedes all numbers.
  static OPW_DEVICE bool Beyond(C a, C b) {
    if (b != b) return false;
    if (a != a) return true;
    return kLargest ? a > b : a < b;
  }
  static OPW_DEVICE State Identity() { return {Worst<C, kLargest>(), -1}; }
  // REQUIRES: indices come in rising order.
  static OPW_DEVICE void Take(State& s, C v, i64 index) {
    if (s.index < 0 || Beyond(v, s.value)) s = {v, index};
  }
  // Of equal values the one with the lower index.
  __device__ State operator()(const State& a, const State& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    if (Beyond(a.value, b.value)) return a;
    if (Beyond(b.value, a.value)) return b;
    return a.index < b.index ? a : b;
  }
  static OPW_DEVICE Out Finish(const State& s, i64) { return s.index; }
};

}  // namespace opw::reduce

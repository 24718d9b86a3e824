// Steps, squares and scaling of contiguous elements, vector by vector in the computing type. The
// includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/optim/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::optim::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// A step's numbers as vectors of E, and the update of a vector of parameters.
template <typename E>
struct Adamw {
  static constexpr int kStates = 2;
  E beta1, rest1, beta2, rest2, rate, root, eps;
  explicit Adamw(const StepNumbers& n)
      : beta1(static_cast<E>(n.beta1)),
        rest1(static_cast<E>(n.rest1)),
        beta2(static_cast<E>(n.beta2)),
        rest2(static_cast<E>(n.rest2)),
        rate(static_cast<E>(n.rate)),
        root(static_cast<E>(n.root)),
        eps(static_cast<E>(n.eps)) {}
  Vec<E> operator()(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    s[0] = Fma(Splat(beta1), s[0], g * rest1);
    s[1] = Fma(Splat(beta2), s[1], g * rest2 * g);
    return p - s[0] * rate / Fma(Sqrt(s[1]), Splat(root), eps);
  }
};

template <typename E>
struct Lamb {
  static constexpr int kStates = 2;
  E beta1, rest1, beta2, rest2, rate, root, eps, pull, trust;
  explicit Lamb(const StepNumbers& n)
      : beta1(static_cast<E>(n.beta1)),
        rest1(static_cast<E>(n.rest1)),
        beta2(static_cast<E>(n.beta2)),
        rest2(static_cast<E>(n.rest2)),
        rate(static_cast<E>(n.rate)),
        root(static_cast<E>(n.root)),
        eps(static_cast<E>(n.eps)),
        pull(static_cast<E>(n.pull)),
        trust(static_cast<E>(-n.trust)) {}
  Vec<E> Update(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    s[0] = Fma(Splat(beta1), s[0], g * rest1);
    s[1] = Fma(Splat(beta2), s[1], g * rest2 * g);
    return Fma(p, Splat(pull), s[0] * rate / Fma(Sqrt(s[1]), Splat(root), eps));
  }
  Vec<E> operator()(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    return Fma(Splat(trust), Update(p, g, s), p);
  }
};

template <typename E, int kMomentum>  // 0: none; 2: Nesterov's
struct Sgd {
  static constexpr int kStates = kMomentum > 0 ? 1 : 0;
  E momentum, rest, rate;
  bool first;
  explicit Sgd(const StepNumbers& n)
      : momentum(static_cast<E>(n.beta1)),
        rest(static_cast<E>(n.rest1)),
        rate(static_cast<E>(-n.rate)),
        first(n.first) {}
  Vec<E> operator()(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    if constexpr (kMomentum > 0) {
      s[0] = first ? g : Fma(Splat(momentum), s[0], g * rest);
      g = kMomentum == 2 ? Fma(Splat(momentum), s[0], g) : s[0];
    }
    return Fma(Splat(rate), g, p);
  }
};

template <typename E>
struct Lion {
  static constexpr int kStates = 1;
  E beta1, rest1, beta2, rest2, rate;
  explicit Lion(const StepNumbers& n)
      : beta1(static_cast<E>(n.beta1)),
        rest1(static_cast<E>(n.rest1)),
        beta2(static_cast<E>(n.beta2)),
        rest2(static_cast<E>(n.rest2)),
        rate(static_cast<E>(n.rate)) {}
  Vec<E> operator()(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    const Vec<E> c = Fma(Splat(beta1), s[0], g * rest1);
    s[0] = Fma(Splat(beta2), s[0], g * rest2);
    const Vec<E> zero = Splat(E{0}), rates = Splat(rate);
    return p - (c > zero ? rates : c < zero ? -rates : c * zero);  // of a NaN c * 0 is NaN
  }
};

template <typename E>
struct Adagrad {
  static constexpr int kStates = 1;
  E rate, eps;
  explicit Adagrad(const StepNumbers& n)
      : rate(static_cast<E>(n.rate)), eps(static_cast<E>(n.eps)) {}
  Vec<E> operator()(Vec<E> p, Vec<E> g, Vec<E>* s) const {
    s[0] = Fma(g, g, s[0]);
    return p - g * rate / (Sqrt(s[0]) + eps);
  }
};

// Parameters and gradients of type S, states of type G.
template <typename S, typename G, typename Step, bool kL2>
void StepWith(const StepPart& part, const StepNumbers& n) {
  using E = typename Mem<S>::Compute;
  static_assert(Mem<S>::kLanes == Mem<G>::kLanes);
  constexpr int kLanes = Mem<S>::kLanes, kStates = Step::kStates;
  const Step step(n);
  const E gradient = static_cast<E>(n.gradient), l2 = static_cast<E>(n.l2),
          decay = static_cast<E>(n.decay);
  const auto move = [&](Vec<E> p, Vec<E> g, Vec<E>* s) {
    g = g * gradient;
    if constexpr (kL2) g = Fma(p, Splat(l2), g);
    return step(p * decay, g, s);
  };
  S* const to = static_cast<S*>(part.params);
  const S *const from = static_cast<const S*>(part.from_params), *const grads =
                                                                     static_cast<const S*>(
                                                                         part.grads);
  int64_t i = 0;
  for (; i + kLanes <= part.n; i += kLanes) {
    Vec<E> s[2];
    for (int k = 0; k < kStates; ++k)
      s[k] = Mem<G>::Load(static_cast<const G*>(part.from_states[k]) + i);
    Mem<S>::Store(to + i, move(Mem<S>::Load(from + i), Mem<S>::Load(grads + i), s));
    for (int k = 0; k < kStates; ++k) Mem<G>::Store(static_cast<G*>(part.states[k]) + i, s[k]);
  }
  if (const int64_t rest = part.n - i; rest > 0) {
    Vec<E> s[2];
    for (int k = 0; k < kStates; ++k)
      s[k] = Mem<G>::LoadN(static_cast<const G*>(part.from_states[k]) + i, rest);
    Mem<S>::StoreN(to + i, move(Mem<S>::LoadN(from + i, rest), Mem<S>::LoadN(grads + i, rest), s),
                   rest);
    for (int k = 0; k < kStates; ++k)
      Mem<G>::StoreN(static_cast<G*>(part.states[k]) + i, s[k], rest);
  }
}

template <typename S, typename G, typename Step>
void StepOf(const StepPart& part, const StepNumbers& n) {
  n.l2 != 0 ? StepWith<S, G, Step, true>(part, n) : StepWith<S, G, Step, false>(part, n);
}
template <typename S, typename G>
void SgdOf(const StepPart& part, const StepNumbers& n) {
  using E = typename Mem<S>::Compute;
  if (part.from_states[0] == nullptr)
    StepOf<S, G, Sgd<E, 0>>(part, n);
  else if (n.nesterov)
    StepOf<S, G, Sgd<E, 2>>(part, n);
  else
    StepOf<S, G, Sgd<E, 1>>(part, n);
}

template <typename S, typename G>
void LambSums(const StepPart& part, const StepNumbers& n, double* params, double* updates) {
  using E = typename Mem<S>::Compute;
  const Lamb<E> step(n);
  const E gradient = static_cast<E>(n.gradient);
  const S *const from = static_cast<const S*>(part.from_params), *const grads =
                                                                     static_cast<const S*>(
                                                                         part.grads);
  const G *const m = static_cast<const G*>(part.from_states[0]), *const v = static_cast<const G*>(
                                                                     part.from_states[1]);
  *params += static_cast<double>(ReduceWith(
      from, part.n, E{0}, [](Vec<E> p) { return p * p; }, Plus()));
  *updates += static_cast<double>(ReduceVectors(
      part.n, E{0},
      [&](int64_t i, auto lanes) {
        Vec<E> s[2] = {lanes.Load(m + i), lanes.Load(v + i)};
        const Vec<E> u = step.Update(lanes.Load(from + i), lanes.Load(grads + i) * gradient, s);
        return u * u;
      },
      Plus()));
}

template <typename S>
double Square(const void* x, int64_t n) {
  using E = typename Mem<S>::Compute;
  return ReduceWith(
      static_cast<const S*>(x), n, E{0}, [](Vec<E> v) { return v * v; }, Plus());
}

// A finite value times 0 is 0, so a sum of such products shows whether all are finite.
template <typename S>
bool Scale(void* y, const void* x, int64_t n, float factor) {
  using E = typename Mem<S>::Compute;
  constexpr int kLanes = Mem<S>::kLanes;
  const S* const from = static_cast<const S*>(x);
  S* const to = static_cast<S*>(y);
  Vec<E> bad{};
  // As stored: narrower types overflow sooner.
  const auto scaled = [&](Vec<E> v) {
    v = v * static_cast<E>(factor);
    if constexpr (sizeof(S) < sizeof(E))
      bad = bad + Mem<S>::Widen(Mem<S>::Narrow(v)) * E{0};
    else
      bad = bad + v * E{0};
    return v;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Mem<S>::Store(to + i, scaled(Mem<S>::Load(from + i)));
  if (i < n) {
    const Vec<E> before = bad, last = scaled(Mem<S>::LoadN(from + i, n - i));
    bad = LanesBelow<E>(n - i) ? bad : before;
    Mem<S>::StoreN(to + i, last, n - i);
  }
  bool any = false;
  for (int k = 0; k < kLanes; ++k) any |= bad[k] != bad[k];
  return any;
}

template <typename S, typename G>
constexpr void SetSteps(OptimLoops* l, int type, bool wider) {
  using E = typename Mem<S>::Compute;
  l->step[static_cast<int>(OptimRule::kAdamw)][type][wider] = StepOf<S, G, Adamw<E>>;
  l->step[static_cast<int>(OptimRule::kSgd)][type][wider] = SgdOf<S, G>;
  l->step[static_cast<int>(OptimRule::kLion)][type][wider] = StepOf<S, G, Lion<E>>;
  l->step[static_cast<int>(OptimRule::kAdagrad)][type][wider] = StepOf<S, G, Adagrad<E>>;
  l->step[static_cast<int>(OptimRule::kLamb)][type][wider] = StepOf<S, G, Lamb<E>>;
  l->lamb[type][wider] = LambSums<S, G>;
}
template <typename S>
constexpr void SetType(OptimLoops* l, int type) {
  SetSteps<S, S>(l, type, false);
  l->square[type] = Square<S>;
  l->scale[type] = Scale<S>;
}
constexpr OptimLoops Loops() {
  OptimLoops l{};
  SetType<double>(&l, OPW_F64);
  SetType<float>(&l, OPW_F32);
  SetType<Half>(&l, OPW_F16);
  SetType<BFloat16>(&l, OPW_BF16);
  SetSteps<Half, float>(&l, OPW_F16, true);
  SetSteps<BFloat16, float>(&l, OPW_BF16, true);
  return l;
}
constexpr OptimLoops kOptimLoops = Loops();

}  // namespace
}  // namespace opwire::ops::optim::OPWIRE_ISA

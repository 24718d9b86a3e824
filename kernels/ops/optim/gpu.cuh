// Steps of optimisers, scaling and norms of lists of tensors: blocks process chunks of all of a
// launch's tensors in turn.
#include "kernels/ops/gpu/rows.cuh"
#include "kernels/ops/optim/gpu_params.h"

namespace opw::optim {

// Elements of a chunk of tensors of T.
template <typename T>
inline constexpr int kChunk = kChunkVectors* kPerVector<T>;

// Calls body(tensor, first element, elements, chunk) for the block's chunks.
template <typename T, typename F>
OPW_DEVICE void ForChunks(const Tensors& t, const F& body) {
  const u32 chunks = t.first[t.count];
  for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    int low = 0, high = t.count;  // the last tensor that begins at this chunk or before it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (t.first[middle] <= chunk ? low : high) = middle;
    }
    const i64 begin = static_cast<i64>(chunk - t.first[low]) * kChunk<T>,
              rest = t.elements[low] - begin;
    body(low, begin, rest < kChunk<T> ? static_cast<int>(rest) : kChunk<T>, chunk);
  }
}

// A vector of T's elements, and the corresponding elements of a wider type G: one access or several
// of 16 bytes.
template <typename T, typename G>
struct Beside {
  static constexpr int kQuads = static_cast<int>(sizeof(G) / sizeof(T));
  Wide<G> parts[kQuads];
  OPW_DEVICE void Load(const G* p) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) parts[i] = LoadAligned(p + i * kPerVector<G>);
  }
  OPW_DEVICE ComputeOf<G> Get(int k) const {
    return opw::Load(parts[k / kPerVector<G>].Get(k % kPerVector<G>));
  }
};
template <typename T, typename G>
OPW_DEVICE void StoreBeside(G* p, const ComputeOf<G> (&v)[kPerVector<T>]) {
#pragma unroll
  for (int i = 0; i < Beside<T, G>::kQuads; ++i) {
    ComputeOf<G> part[kPerVector<G>];
#pragma unroll
    for (int k = 0; k < kPerVector<G>; ++k) part[k] = v[i * kPerVector<G> + k];
    StoreWide(p + i * kPerVector<G>, RoundAll<G>(part), true);
  }
}

// ---- Rules: the numbers of a step, which each thread has, and the new values of an element and
// its states, computed from its gradient

template <typename C>
OPW_DEVICE C CorrectionOf(double log_beta, i64 step) {
  // 1 - beta^step; the result's relative error is at most the exponent's.
  return -Expm1(static_cast<C>(step) * static_cast<C>(log_beta));
}

template <typename C, bool kCorrect>
struct Adamw {
  static constexpr int kStates = 2;
  C beta1, rest1, beta2, rest2, rate, root, eps;
  template <typename P>
  OPW_DEVICE explicit Adamw(const P& p)
      : beta1(static_cast<C>(p.beta1)),
        rest1(static_cast<C>(p.rest1)),
        beta2(static_cast<C>(p.beta2)),
        rest2(static_cast<C>(p.rest2)),
        rate(static_cast<C>(*p.lr)),
        root(1),
        eps(static_cast<C>(p.eps)) {
    if constexpr (kCorrect) {
      const i64 step = *p.step;
      rate /= CorrectionOf<C>(p.log_beta1, step);
      root = 1 / Sqrt(CorrectionOf<C>(p.log_beta2, step));
    }
  }
  OPW_DEVICE C operator()(C p, C g, C (&s)[2]) const {
    s[0] = Fma(beta1, s[0], rest1 * g);
    s[1] = Fma(beta2, s[1], rest2 * g * g);
    return p - rate * s[0] / Fma(Sqrt(s[1]), root, eps);
  }
};

template <typename C, bool kCorrect>
struct Lamb {
  static constexpr int kStates = 2;
  C beta1, rest1, beta2, rest2, rate, root, eps, pull, trust;
  template <typename P>
  OPW_DEVICE explicit Lamb(const P& p)
      : beta1(static_cast<C>(p.beta1)),
        rest1(static_cast<C>(p.rest1)),
        beta2(static_cast<C>(p.beta2)),
        rest2(static_cast<C>(p.rest2)),
        rate(1),
        root(1),
        eps(static_cast<C>(p.eps)),
        pull(static_cast<C>(p.weight_decay)),
        trust(0) {
    if constexpr (kCorrect) {
      const i64 step = *p.step;
      rate /= CorrectionOf<C>(p.log_beta1, step);
      root = 1 / Sqrt(CorrectionOf<C>(p.log_beta2, step));
    }
  }
  // Call before the launch's tensor t.
  template <typename P>
  OPW_DEVICE void Enter(const P& p, int t) {
    trust = -static_cast<C>(*p.lr) * static_cast<const C*>(p.coefficients)[p.places[t]];
  }
  OPW_DEVICE C Update(C p, C g, C (&s)[2]) const {
    s[0] = Fma(beta1, s[0], rest1 * g);
    s[1] = Fma(beta2, s[1], rest2 * g * g);
    return Fma(pull, p, rate * s[0] / Fma(Sqrt(s[1]), root, eps));
  }
  OPW_DEVICE C operator()(C p, C g, C (&s)[2]) const { return Fma(trust, Update(p, g, s), p); }
};
// Numbers that are the same for all tensors are not read for each tensor.
template <typename Rule>
inline constexpr bool kByTensor = false;
template <typename C, bool kCorrect>
inline constexpr bool kByTensor<Lamb<C, kCorrect>> = true;

template <typename C, int kMomentum>  // 0: none; 2: Nesterov's
struct Sgd {
  static constexpr int kStates = kMomentum > 0 ? 1 : 0;
  C momentum, rest, rate;
  bool first;
  template <typename P>
  OPW_DEVICE explicit Sgd(const P& p)
      : momentum(static_cast<C>(p.beta1)),
        rest(static_cast<C>(p.rest1)),
        rate(-static_cast<C>(*p.lr)),
        first(kMomentum > 0 && *p.step == 1) {}
  OPW_DEVICE C operator()(C p, C g, C (&s)[kStates + (kStates == 0)]) const {
    if constexpr (kMomentum > 0) {
      s[0] = first ? g : Fma(momentum, s[0], rest * g);
      g = kMomentum == 2 ? Fma(momentum, s[0], g) : s[0];
    }
    return Fma(rate, g, p);
  }
};

template <typename C>
struct Lion {
  static constexpr int kStates = 1;
  C beta1, rest1, beta2, rest2, rate;
  template <typename P>
  OPW_DEVICE explicit Lion(const P& p)
      : beta1(static_cast<C>(p.beta1)),
        rest1(static_cast<C>(p.rest1)),
        beta2(static_cast<C>(p.beta2)),
        rest2(static_cast<C>(p.rest2)),
        rate(static_cast<C>(*p.lr)) {}
  OPW_DEVICE C operator()(C p, C g, C (&s)[1]) const {
    const C c = Fma(beta1, s[0], rest1 * g);
    s[0] = Fma(beta2, s[0], rest2 * g);
    return p - (c > 0 ? rate : c < 0 ? -rate : c * 0);  // for a NaN c * 0 is NaN
  }
};

template <typename C>
struct Adagrad {
  static constexpr int kStates = 1;
  C rate, eps;
  template <typename P>
  OPW_DEVICE explicit Adagrad(const P& p)
      : rate(static_cast<C>(*p.lr)), eps(static_cast<C>(p.eps)) {}
  OPW_DEVICE C operator()(C p, C g, C (&s)[1]) const {
    s[0] = Fma(g, g, s[0]);
    return p - rate * g / (Sqrt(s[0]) + eps);
  }
};

enum Decay { kNoDecay, kDecoupled, kL2 };

// The type of the copies if there are none.
struct NoCopy {};

// The tensors of a chunk: parameters and gradients of T, states of G, copies of K.
template <typename T, typename G, typename Rule, typename K = NoCopy>
struct Place {
  static constexpr int kStates = Rule::kStates, kSome = kStates + (kStates == 0);
  const T *param, *grad;
  T* to;
  const G* state[kSome];
  G* state_to[kSome];
  K* copy = nullptr;
  template <typename P>
  OPW_DEVICE Place(const P& p, int t, i64 begin)
      : param(static_cast<const T*>(p.in[0][t]) + begin),
        grad(static_cast<const T*>(p.in[1][t]) + begin),
        to(static_cast<T*>(p.out[0][t]) + begin) {
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      state[s] = static_cast<const G*>(p.in[2 + s][t]) + begin;
      state_to[s] = static_cast<G*>(p.out[1 + s][t]) + begin;
    }
    if constexpr (!kSame<K, NoCopy>) copy = static_cast<K*>(p.copies[t]) + begin;
  }
  OPW_DEVICE bool Aligned() const {
    u64 addresses = reinterpret_cast<u64>(param) | reinterpret_cast<u64>(grad) |
                    reinterpret_cast<u64>(to) | reinterpret_cast<u64>(copy);
#pragma unroll
    for (int s = 0; s < kStates; ++s)
      addresses |= reinterpret_cast<u64>(state[s]) | reinterpret_cast<u64>(state_to[s]);
    return (addresses & 15) == 0;
  }
  // A result may share memory with any operand of its place, so all operands are read before any
  // result is written.
  OPW_DEVICE void CopyAll(int n) const {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      T own{};
      G states[kSome]{};
      if (to != param || !kSame<K, NoCopy>) own = param[i];
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        if (state_to[s] != state[s]) states[s] = state[s][i];
      }
      if (to != param) to[i] = own;
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        if (state_to[s] != state[s]) state_to[s][i] = states[s];
      }
      if constexpr (!kSame<K, NoCopy>) copy[i] = Store<K>(Load(own));
    }
  }
};

template <typename T, typename G, typename Rule, int kDecay, typename K = NoCopy>
OPW_DEVICE void Step(const StepParams<2 + Rule::kStates>& p) {
  using C = ComputeOf<T>;
  constexpr int kStates = Rule::kStates, kSome = kStates + (kStates == 0), kWidth = kPerVector<T>;
  constexpr int kBatch = kStates == 2 ? 1 : 2;  // vectors of each list in flight per thread
  const bool skips = p.skip != nullptr && *p.skip != 0;
  Rule rule(p);
  const C gradient =
      static_cast<C>(p.sign) / (p.grad_scale == nullptr ? C(1) : static_cast<C>(*p.grad_scale));
  const C l2 = static_cast<C>(p.weight_decay),
          decay = kDecay == kDecoupled
                      ? static_cast<C>(1 - static_cast<double>(*p.lr) * p.weight_decay)
                      : C(1);
  const auto move = [&](C param, C grad, C(&states)[kSome]) -> C {
    C g = grad * gradient;
    if constexpr (kDecay == kL2) g = Fma(l2, param, g);
    if constexpr (kDecay == kDecoupled) param *= decay;
    return rule(param, g, states);
  };
  ForChunks<T>(p.tensors, [&](int t, i64 begin, int n, u32) {
    const Place<T, G, Rule, K> place(p, t, begin);
    if (skips) return place.CopyAll(n);
    if constexpr (kByTensor<Rule>) rule.Enter(p, t);
    const int size = static_cast<int>(blockDim.x), vectors = place.Aligned() ? n / kWidth : 0;
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first < vectors; first += size * kBatch) {
      Wide<T> params[kBatch], grads[kBatch];
      Beside<T, G> states[kBatch][kSome];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = (first + b * size) * kWidth;
        if (first + b * size < vectors) {
          params[b] = LoadAligned(place.param + at);
          grads[b] = LoadAligned(place.grad + at);
#pragma unroll
          for (int s = 0; s < kStates; ++s) states[b][s].Load(place.state[s] + at);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = (first + b * size) * kWidth;
        if (first + b * size < vectors) {
          C out[kWidth], out_states[kSome][kWidth];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            C s[kSome];
#pragma unroll
            for (int i = 0; i < kStates; ++i) s[i] = states[b][i].Get(k);
            out[k] = move(Load(params[b].Get(k)), Load(grads[b].Get(k)), s);
#pragma unroll
            for (int i = 0; i < kStates; ++i) out_states[i][k] = s[i];
          }
          const Wide<T> rounded = RoundAll<T>(out);
          StoreWide(place.to + at, rounded, true);
          if constexpr (!kSame<K, NoCopy>) {
            Vector<K, kWidth> copies;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) copies.v[k] = Store<K>(Load(rounded.Get(k)));
            StoreVector(place.copy + at, copies);
          }
#pragma unroll
          for (int i = 0; i < kStates; ++i) StoreBeside<T>(place.state_to[i] + at, out_states[i]);
        }
      }
    }
#pragma unroll 1
    for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n; i += size) {
      C s[kSome];
#pragma unroll
      for (int k = 0; k < kStates; ++k) s[k] = Load(place.state[k][i]);
      const T param = Store<T>(move(Load(place.param[i]), Load(place.grad[i]), s));
      place.to[i] = param;
      if constexpr (!kSame<K, NoCopy>) place.copy[i] = Store<K>(Load(param));
#pragma unroll
      for (int k = 0; k < kStates; ++k) place.state_to[k][i] = Store<G>(s[k]);
    }
  });
}

// ---- lamb's coefficients: sums of squares of chunks, then of each tensor's

template <typename T, typename G, typename Rule>
OPW_DEVICE void LambSums(const StepParams<4>& p) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>;
  if (p.skip != nullptr && *p.skip != 0) return;
  const Rule rule(p);
  const C gradient =
      static_cast<C>(p.sign) / (p.grad_scale == nullptr ? C(1) : static_cast<C>(*p.grad_scale));
  ForChunks<T>(p.tensors, [&](int t, i64 begin, int n, u32 chunk) {
    const Place<T, G, Rule> place(p, t, begin);
    C params = 0, updates = 0;
    const auto take = [&](C param, C grad, C m, C v) {
      C s[2] = {m, v};
      const C u = rule.Update(param, grad * gradient, s);
      params = Fma(param, param, params);
      updates = Fma(u, u, updates);
    };
    const int size = static_cast<int>(blockDim.x), vectors = place.Aligned() ? n / kWidth : 0;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += size) {
      const Wide<T> param = LoadAligned(place.param + i * kWidth),
                    grad = LoadAligned(place.grad + i * kWidth);
      Beside<T, G> m, v;
      m.Load(place.state[0] + i * kWidth);
      v.Load(place.state[1] + i * kWidth);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        take(Load(param.Get(k)), Load(grad.Get(k)), m.Get(k), v.Get(k));
    }
#pragma unroll 1
    for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n; i += size) {
      take(Load(place.param[i]), Load(place.grad[i]), Load(place.state[0][i]),
           Load(place.state[1][i]));
    }
    params = GroupReduce<0>(params, Sum(), C(0));
    updates = GroupReduce<0>(updates, Sum(), C(0));
    if (threadIdx.x == 0) {
      static_cast<C*>(p.sums)[chunk] = params;
      static_cast<C*>(p.sums)[chunk + p.sums_apart] = updates;
    }
  });
}

// One block per tensor.
template <typename T>
OPW_DEVICE void LambCoefficients(const CoefficientParams& p) {
  using C = ComputeOf<T>;
  const bool skips = p.skip != nullptr && *p.skip != 0;
  const C* const sums = static_cast<const C*>(p.sums);
  for (i64 t = blockIdx.x; t < p.tensors; t += gridDim.x) {
    double params = 0, updates = 0;
    if (!skips) {
      for (i64 i = p.first[t] + threadIdx.x; i < p.first[t + 1]; i += blockDim.x) {
        params += static_cast<double>(sums[i]);
        updates += static_cast<double>(sums[i + p.first[p.tensors]]);
      }
    }
    params = GroupReduce<0>(params, Sum(), 0.0);
    updates = GroupReduce<0>(updates, Sum(), 0.0);
    if (threadIdx.x != 0) continue;
    const double ratio = Sqrt(params) / Sqrt(updates);
    const double c = params == 0 || updates == 0 ? 1.0
                     : ratio < p.least           ? p.least
                     : ratio > p.most            ? p.most
                                                 : ratio;
    static_cast<C*>(p.coefficients)[t] = static_cast<C>(c);
  }
}

// ---- Scaling

template <typename T>
OPW_DEVICE void Scale(const ScaleParams& p) {
  using C = ComputeOf<T>;
  const C factor = static_cast<C>(*p.factor);
  C bad = 0;  // a finite value times 0 is 0
  const auto scaled = [&](T v) -> T {
    const T out = Store<T>(Load(v) * factor);
    bad += Load(out) * 0;  // as stored: narrower types overflow sooner
    return out;
  };
  ForChunks<T>(p.tensors, [&](int t, i64 begin, int n, u32) {
    const T* const x = static_cast<const T*>(p.in[t]) + begin;
    T* const y = static_cast<T*>(p.out[t]) + begin;
    constexpr int kWidth = kPerVector<T>, kBatch = 4;
    const int size = static_cast<int>(blockDim.x),
              vectors = Phase(x) == 0 && Phase(y) == 0 ? n / kWidth : 0;
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first < vectors; first += size * kBatch) {
      Wide<T> v[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * size < vectors) v[b] = LoadAligned(x + (first + b * size) * kWidth);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * size < vectors) {
          C out[kWidth];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) out[k] = Load(v[b].Get(k)) * factor;
          const Wide<T> stored = RoundAll<T>(out);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) bad += Load(stored.Get(k)) * 0;
          StoreWide(y + (first + b * size) * kWidth, stored, true);
        }
      }
    }
#pragma unroll 1
    for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n; i += size)
      y[i] = scaled(x[i]);
  });
  if (bad != bad) *p.overflow = 1;
}

// ---- Norms: sums of chunks, then of each tensor's chunks and of all

template <typename T>
OPW_DEVICE void Squares(const SquareParams& p) {
  using C = ComputeOf<T>;
  ForChunks<T>(p.tensors, [&](int t, i64 begin, int n, u32 chunk) {
    C sum = 0;
    ForSpan<0, 4, false>(
        static_cast<const T*>(p.in[t]) + begin, n,
        [&](i64 at) {
          const C v = Load(static_cast<const T*>(p.in[t])[begin + at]);
          sum = Fma(v, v, sum);
        },
        [&](const Wide<T>* v, int count, i64, i64) {
#pragma unroll
          for (int b = 0; b < count; ++b) {
#pragma unroll
            for (int k = 0; k < kPerVector<T>; ++k)
              sum = Fma(Load(v[b].Get(k)), Load(v[b].Get(k)), sum);
          }
        });
    sum = GroupReduce<0>(sum, Sum(), C(0));
    if (threadIdx.x == 0) static_cast<C*>(p.sums)[chunk] = sum;
  });
}

// One block per tensor, and one for all tensors.
template <typename T>
OPW_DEVICE void Norms(const NormParams& p) {
  using C = ComputeOf<T>;
  for (i64 t = blockIdx.x; t <= p.tensors; t += gridDim.x) {
    const bool all = t == p.tensors;
    const i64 begin = all ? 0 : p.first[t], end = p.first[all ? t : t + 1];
    double sum = 0;
    for (i64 i = begin + threadIdx.x; i < end; i += blockDim.x)
      sum += static_cast<double>(static_cast<const C*>(p.sums)[i]);
    sum = GroupReduce<0>(sum, Sum(), 0.0);
    if (threadIdx.x == 0)
      *(all ? static_cast<C*>(p.norm) : static_cast<C*>(p.norms) + t) = static_cast<C>(Sqrt(sum));
  }
}

}  // namespace opw::optim

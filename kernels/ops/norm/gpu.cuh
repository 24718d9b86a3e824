// layer_norm and rms_norm, of x or of x + residual. Rows are held in registers or shared memory;
// longer rows are read twice; a few long rows are split among blocks.
#include "kernels/ops/gpu/chunks.cuh"
#include "kernels/ops/norm/gpu_params.h"

namespace opw::norm {

// The mean of `count` elements, and the sum of squared distances from it. Two are joined by Chan,
// Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
// (1979). For rms_norm (kLayer false) the mean is taken as 0.
template <typename C>
struct Moments {
  C count, mean, square;
};
template <typename C>
OPW_DEVICE Moments<C> ShuffleXor(const Moments<C>& m, int mask) {
  return {opw::ShuffleXor(m.count, mask), opw::ShuffleXor(m.mean, mask),
          opw::ShuffleXor(m.square, mask)};
}
template <typename C>
OPW_DEVICE Moments<C> ShuffleFrom(const Moments<C>& m, int lane) {
  return {opw::ShuffleFrom(m.count, lane), opw::ShuffleFrom(m.mean, lane),
          opw::ShuffleFrom(m.square, lane)};
}
template <bool kLayer>
struct Join {
  template <typename C>
  __device__ Moments<C> operator()(const Moments<C>& a, const Moments<C>& b) const {
    const C count = a.count + b.count;
    if (!kLayer || b.count == C(0)) return {count, a.mean, a.square + b.square};
    const C part = b.count / count, apart = b.mean - a.mean;
    return {count, a.mean + apart * part, a.square + b.square + apart * apart * a.count * part};
  }
};

// Of the elements of `count` vectors.
template <bool kLayer, typename T>
OPW_DEVICE Moments<ComputeOf<T>> MomentsOfVectors(const Wide<T>* v, int count) {
  using C = ComputeOf<T>;
  const C elements = static_cast<C>(count * kPerVector<T>);
  Moments<C> own{elements, 0, 0};
  if constexpr (kLayer) {
#pragma unroll
    for (int b = 0; b < count; ++b) {
#pragma unroll
      for (int k = 0; k < kPerVector<T>; ++k) own.mean += Load(v[b].Get(k));
    }
    own.mean *= 1 / elements;
  }
#pragma unroll
  for (int b = 0; b < count; ++b) {
#pragma unroll
    for (int k = 0; k < kPerVector<T>; ++k) {
      const C apart = Load(v[b].Get(k)) - own.mean;
      own.square = Fma(apart, apart, own.square);
    }
  }
  return own;
}

// The input of the norm, starting with element `begin` of a row: x, or with kResidual x + residual,
// which is stored when it is read.
template <typename T, bool kResidual>
struct Input {
  const T *x, *residual;
  T* sum;
  OPW_DEVICE Input(const RowsParams& p, i64 begin)
      : x(static_cast<const T*>(p.x) + begin),
        residual(kResidual ? static_cast<const T*>(p.residual) + begin : nullptr),
        sum(kResidual ? static_cast<T*>(p.sum) + begin : nullptr) {}

  OPW_DEVICE ComputeOf<T> One(i64 at) const {
    if constexpr (!kResidual)
      return Load(x[at]);
    else
      return Load(sum[at] = Store<T>(Load(x[at]) + Load(residual[at])));
  }
  // Adds the residual to vectors of x starting with `at`, with distance `step`.
  OPW_DEVICE void Complete(Wide<T>* v, int count, i64 at, i64 step) const {
    if constexpr (kResidual) {
      Wide<T> others[4];
#pragma unroll
      for (int b = 0; b < count; ++b) others[b] = LoadShifted(residual + at + b * step);
#pragma unroll
      for (int b = 0; b < count; ++b) {
        v[b] = MapPairs(v[b], others[b], Sum());
        StoreWide(sum + at + b * step, v[b], Phase(sum) == Phase(x));
      }
    }
  }
};

// The moments of n elements, for all threads of the group.
template <bool kLayer, int kLanes, typename T, bool kResidual>
OPW_DEVICE Moments<ComputeOf<T>> MomentsOf(const Input<T, kResidual>& in, i64 n) {
  using C = ComputeOf<T>;
  Moments<C> m{0, 0, 0};
  ForSpan<kLanes, 4, false, kResidual>(
      in.x, n,
      [&](i64 at) {
        const C v = in.One(at);
        m = Join<kLayer>()(m, kLayer ? Moments<C>{1, v, 0} : Moments<C>{1, 0, v * v});
      },
      [&](Wide<T>* v, int count, i64 at, i64 step) {
        in.Complete(v, count, at, step);
        m = Join<kLayer>()(m, MomentsOfVectors<kLayer>(v, count));
      });
  return GroupReduce<kLanes>(m, Join<kLayer>(), Moments<C>{0, 0, 0});
}

// Weights and biases. kShifted: their alignment differs from the row's vectors.
template <typename T, bool kWeight, bool kBias, bool kShifted>
struct Affine {
  using C = ComputeOf<T>;
  const T *weight, *bias;
  OPW_DEVICE explicit Affine(const RowsParams& p)
      : weight(static_cast<const T*>(p.weight)), bias(static_cast<const T*>(p.bias)) {}

  struct Pair {
    C weight, bias;
  };
  struct Pairs {
    Wide<T> weight, bias;
    OPW_DEVICE Pairs Again() const {
      Pairs out;
      if constexpr (kWeight) out.weight = Anew(weight);
      if constexpr (kBias) out.bias = Anew(bias);
      return out;
    }
    OPW_DEVICE Pair Get(int k) const {
      return {kWeight ? Load(weight.Get(k)) : C(1), kBias ? Load(bias.Get(k)) : C(0)};
    }
  };
  // For the elements of a vector starting with `at`, and for one element.
  OPW_DEVICE Pairs Beside(i64 at) const {
    Pairs out;
    if constexpr (kWeight)
      out.weight = kShifted ? LoadShifted(weight + at) : LoadAligned(weight + at);
    if constexpr (kBias) out.bias = kShifted ? LoadShifted(bias + at) : LoadAligned(bias + at);
    return out;
  }
  OPW_DEVICE Pair BesideOne(i64 at) const {
    return {kWeight ? Load(weight[at]) : C(1), kBias ? Load(bias[at]) : C(0)};
  }
};
// Maps an element, with its weight and bias, to its result.
template <typename T, bool kLayer, bool kWeight, bool kBias>
struct Finish {
  using C = ComputeOf<T>;
  C mean, factor;
  OPW_DEVICE Finish(const RowsParams& p, C row_mean, C square)
      : mean(row_mean),
        factor(InverseSqrtFor<T>(QuotientFor<T>(square, static_cast<C>(p.extent)) +
                                 static_cast<C>(p.eps))) {}
  template <typename Pair>
  OPW_DEVICE C operator()(C v, i64, const Pair& pair) const {
    const C out = (kLayer ? v - mean : v) * factor;
    if constexpr (kWeight && kBias)
      return Fma(out, pair.weight, pair.bias);
    else if constexpr (kWeight)
      return out * pair.weight;
    else
      return kBias ? out + pair.bias : out;
  }
};

// Whether vectors of the rows, their weights and biases are all aligned.
template <typename T, bool kResidual>
OPW_DEVICE bool AllAligned(const RowsParams& p) {
  u64 addresses =
      reinterpret_cast<u64>(p.x) | reinterpret_cast<u64>(p.weight) | reinterpret_cast<u64>(p.bias);
  if constexpr (kResidual) addresses |= reinterpret_cast<u64>(p.residual);
  return ((addresses | static_cast<u64>(p.extent) * sizeof(T)) & 15) == 0;
}

// Joins the moments of a warp's lanes, each of some elements of a row of n elements.
template <typename C>
struct PoolMoments {
  C share;  // 1 / n
  OPW_DEVICE Moments<C> operator()(const Moments<C>& m) const {
    const C mean = WarpReduce(m.count * m.mean, Sum()) * share, apart = m.mean - mean;
    return {1 / share, mean, WarpReduce(Fma(m.count * apart, apart, m.square), Sum())};
  }
};
// The moments of a row that its group holds. If the group has several warps, each warp's part is
// first reduced about its own mean.
template <bool kLayer, int kLanes, typename T, typename Row>
OPW_DEVICE Moments<ComputeOf<T>> MomentsOf(Row& row, i64 n) {
  using C = ComputeOf<T>;
  C count = static_cast<C>(n), mean = 0, square = 0;
  if constexpr (kLayer) {
    row.Each([&](C v) { mean += v; });
    if constexpr (kLanes <= 0) {
      count = static_cast<C>(CountOfWarp<kLanes>(row));
      mean = QuotientFor<T>(WarpReduce(mean, Sum()), Larger(count, C(1)));
    } else {
      mean = QuotientFor<T>(GroupReduce<kLanes>(mean, Sum(), C(0)), count);
    }
  }
  row.Forget();
  row.Each([&](C v) { square = Fma(v - mean, v - mean, square); });
  row.Forget();
  if constexpr (kLanes > 0) {
    return {count, mean, GroupReduce<kLanes>(square, Sum(), C(0))};
  } else {
    square = WarpReduce(square, Sum());
    if constexpr (!kLayer)
      return {count, 0,
              JoinWarps<kLanes>(
                  square, [](C v) { return WarpReduce(v, Sum()); }, Sum(), C(0))};
    else
      return JoinWarps<kLanes>(Moments<C>{count, mean, square},
                               PoolMoments<C>{QuotientFor<T>(C(1), static_cast<C>(n))},
                               Join<true>(), Moments<C>{0, 0, 0});
  }
}

// kEarly: weights and biases of that many vectors per thread are loaded together with the row;
template <typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual, bool kShifted,
          typename Row, int kLanes, int kEarly>
OPW_DEVICE void RowsAs(const RowsParams& p) {
  const Affine<T, kWeight, kBias, kShifted> affine(p);
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    Row x;
    x.Load(static_cast<const T*>(p.x) + row * p.extent, there ? static_cast<int>(p.extent) : 0);
    typename Affine<T, kWeight, kBias, kShifted>::Pairs early[kEarly > 0 ? kEarly : 1];
    if constexpr (kEarly > 0) x.Places([&](int i, int at) { early[i] = affine.Beside(at); });
    x.Await();
    if constexpr (kResidual)
      x.Merge(static_cast<const T*>(p.residual) + row * p.extent,
              static_cast<T*>(p.sum) + row * p.extent, Sum());
    const Moments<ComputeOf<T>> m = MomentsOf<kLayer, kLanes, T>(x, p.extent);
    const Finish<T, kLayer, kWeight, kBias> finish(p, m.mean, m.square);
    const auto beside = [&](int i, int at) {
      if constexpr (kEarly > 0)
        return early[i].Again();
      else
        return affine.Beside(at);
    };
    x.StoreWith(
        static_cast<T*>(p.y) + row * p.extent, beside, [&](int at) { return affine.BesideOne(at); },
        finish);
  });
}
template <typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual, int kLanes,
          int kVectors>
OPW_DEVICE void Rows(const RowsParams& p) {
  constexpr int kEarly = !kResidual && kVectors * (kWeight + kBias) <= 4 ? kVectors : 0;
  if (AllAligned<T, kResidual>(p))
    RowsAs<T, kLayer, kWeight, kBias, kResidual, false, OnChip<T, kLanes, kVectors, Ends::kWhole>,
           kLanes, kEarly>(p);
  else
    RowsAs<T, kLayer, kWeight, kBias, kResidual, true, OnChip<T, kLanes, kVectors, Ends::kTrimmed>,
           kLanes, 0>(p);
}
template <typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual, int kLanes,
          int kVectors, int kThreads, bool kEarly>
OPW_DEVICE void HeldRows(const RowsParams& p) {
  using Whole = Held<T, kLanes, kVectors, kThreads, Ends::kWhole>;
  using Trimmed = Held<T, kLanes, kVectors, kThreads, Ends::kTrimmed>;
  if (AllAligned<T, kResidual>(p))
    RowsAs<T, kLayer, kWeight, kBias, kResidual, false, Whole, kLanes, kEarly ? kVectors : 0>(p);
  else
    RowsAs<T, kLayer, kWeight, kBias, kResidual, true, Trimmed, kLanes, 0>(p);
}

// Rows that blocks walk; each block walks rows with equal alignment. Weights and biases are kept in
// shared memory at the places of each thread's vectors. A block holds two rows: one is loaded while
// the other is processed. The grid is a multiple of the number of rows after which the alignment
// repeats.
template <typename T, bool kLayer, bool kWeight, bool kBias, int kVectors, int kThreads>
OPW_DEVICE void WalkedRows(const RowsParams& p) {
  using Row = OnChip<T, 0, kVectors, Ends::kTrimmed>;
  using Beside = Affine<T, kWeight, kBias, true>;
  extern __shared__ Quad places[];
  Quad* const own = places + threadIdx.x;  // the weights of each vector, then the biases of each
  const i64 step = gridDim.x;
  i64 at = blockIdx.x;
  if (at >= p.rows) return;
  const auto x = [&](i64 row) { return static_cast<const T*>(p.x) + row * p.extent; };
  Row rows[2];
  rows[0].Load(x(at), static_cast<int>(p.extent));
  const Beside affine(p);
  typename Beside::Pair edge{1, 0};
  rows[0].Places(
      [&](int i, int position) {
        const typename Beside::Pairs pairs = affine.Beside(position);
        const auto keep = [&](int which, const Wide<T>& v) {
          own[(which * kVectors + i) * kThreads] = {v.words[0], v.words[1], v.words[2], v.words[3]};
        };
        if constexpr (kWeight) keep(0, pairs.weight);
        if constexpr (kBias) keep(kWeight, pairs.bias);
      },
      [&](int, int position) { edge = affine.BesideOne(position); });
  const auto beside = [&](int i, int) {
    const auto kept = [&](int which) {
      const Quad q = own[(which * kVectors + i) * kThreads];
      return Wide<T>{{q.x, q.y, q.z, q.w}};
    };
    typename Beside::Pairs pairs;
    if constexpr (kWeight) pairs.weight = kept(0);
    if constexpr (kBias) pairs.bias = kept(kWeight);
    return pairs;
  };
  const auto work = [&](Row& row, Row& next) {
    if (at + step < p.rows) next.LoadAlike(row, x(at + step));
    const Moments<ComputeOf<T>> m = MomentsOf<kLayer, 0, T>(row, p.extent);
    const Finish<T, kLayer, kWeight, kBias> finish(p, m.mean, m.square);
    row.StoreWith(
        static_cast<T*>(p.y) + at * p.extent, beside, [&](int) { return edge; }, finish);
    at += step;
  };
#pragma unroll 1
  while (at < p.rows) {
    work(rows[0], rows[1]);
    if (at >= p.rows) break;
    work(rows[1], rows[0]);
  }
}

// Writes n elements of a row, starting with its position `begin`. With kResidual their sums have
// been stored before.
template <bool kBack, typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual>
OPW_DEVICE void Write(const RowsParams& p, i64 row, i64 begin, i64 n, ComputeOf<T> mean,
                      ComputeOf<T> square) {
  const T* const x = static_cast<const T*>(kResidual ? p.sum : p.x) + row * p.extent + begin;
  T* const y = static_cast<T*>(p.y) + row * p.extent + begin;
  const Affine<T, kWeight, kBias, true> affine(p);
  const Finish<T, kLayer, kWeight, kBias> finish(p, mean, square);
  MapSpanWith<0, kBack, true>(
      x, y, n, [&](i64 at) { return affine.Beside(begin + at); },
      [&](i64 at) { return affine.BesideOne(begin + at); }, finish);
}

template <typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual>
OPW_DEVICE void StreamedRows(const RowsParams& p) {
  ForRows<0>(p.rows, [&](i64 row, bool) {
    const Moments<ComputeOf<T>> m =
        MomentsOf<kLayer, 0>(Input<T, kResidual>(p, row * p.extent), p.extent);
    Write<true, T, kLayer, kWeight, kBias, kResidual>(p, row, 0, p.extent, m.mean, m.square);
  });
}

// Rows in chunks: one launch that reduces them, and one that writes.
template <typename T, bool kLayer, bool kResidual>
OPW_DEVICE void ReduceChunks(const RowsParams& p) {
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const i64 row = blockIdx.x;
  const Moments<ComputeOf<T>> m =
      MomentsOf<kLayer, 0>(Input<T, kResidual>(p, row * p.extent + c.begin), c.size);
  if (threadIdx.x == 0)
    static_cast<Moments<ComputeOf<T>>*>(p.partials)[row * p.chunks + blockIdx.y] = m;
}
template <typename T, bool kLayer, bool kWeight, bool kBias, bool kResidual>
OPW_DEVICE void WriteChunks(const RowsParams& p) {
  using C = ComputeOf<T>;
  const i64 row = blockIdx.x;
  const Moments<C> m = JoinChunks(static_cast<const Moments<C>*>(p.partials) + row * p.chunks,
                                  p.chunks, Join<kLayer>(), Moments<C>{0, 0, 0});
  const Chunk c = ChunkOf(p.extent, p.chunk);
  Write<false, T, kLayer, kWeight, kBias, kResidual>(p, row, c.begin, c.size, m.mean, m.square);
}

}  // namespace opw::norm
// they are loaded when they are needed.

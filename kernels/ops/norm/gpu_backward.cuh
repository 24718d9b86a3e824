// layer_norm_backward and rms_norm_backward. Rows of whole vectors are walked once, with the sums
// over rows in registers (gpu_backward_walk.cuh). For other rows grad_x is computed first. Rows are
// held in registers; longer rows are read twice; a few long rows are split among blocks. Then
// blocks of rows and columns compute the sums over rows. Blocks' sums are added in a fixed order.
#include "kernels/ops/norm/gpu.cuh"
#include "kernels/ops/norm/gpu_backward_params.h"

namespace opw::norm {

// For a row: (x - mean) * factor is the normalised element.
template <typename C>
struct RowScale {
  C mean, factor;
};

// Sums over a row that grad_x needs. A slope is the gradient by a normalised element; the sums are
// of slopes, and of slopes times (x - mean).
template <typename C>
struct Slopes {
  C sum, product;
};
// For the elements seen so far, with their moments, so that sums of products with different means
// can be joined.
template <typename C>
struct State {
  Moments<C> x;
  Slopes<C> slopes;
};
template <typename C>
OPW_DEVICE State<C> NoneSeen() {
  return {{0, 0, 0}, {0, 0}};
}
template <typename C>
OPW_DEVICE State<C> ShuffleXor(const State<C>& s, int mask) {
  return {ShuffleXor(s.x, mask),
          {opw::ShuffleXor(s.slopes.sum, mask), opw::ShuffleXor(s.slopes.product, mask)}};
}
template <typename C>
OPW_DEVICE State<C> ShuffleFrom(const State<C>& s, int lane) {
  return {ShuffleFrom(s.x, lane),
          {opw::ShuffleFrom(s.slopes.sum, lane), opw::ShuffleFrom(s.slopes.product, lane)}};
}
template <bool kLayer>
struct JoinStates {
  template <typename C>
  __device__ State<C> operator()(const State<C>& a, const State<C>& b) const {
    State<C> out{Join<kLayer>()(a.x, b.x),
                 {a.slopes.sum + b.slopes.sum, a.slopes.product + b.slopes.product}};
    if (kLayer)
      out.slopes.product +=
          a.slopes.sum * (a.x.mean - out.x.mean) + b.slopes.sum * (b.x.mean - out.x.mean);
    return out;
  }
};
// The same if both have the row's mean already.
struct AddStates {
  template <typename C>
  __device__ State<C> operator()(const State<C>& a, const State<C>& b) const {
    return {{a.x.count, a.x.mean, a.x.square + b.x.square},
            {a.slopes.sum + b.slopes.sum, a.slopes.product + b.slopes.product}};
  }
};

// A row's gradient and weight, at the positions of x's elements. kShifted: their alignment differs
// from x's vectors.
template <typename T, bool kWeight, bool kShifted>
struct Beside {
  using C = ComputeOf<T>;
  const T *grad, *weight;
  struct Vectors {
    Wide<T> grad, weight;
    OPW_DEVICE C Get(int k) const {
      return kWeight ? Load(grad.Get(k)) * Load(weight.Get(k)) : Load(grad.Get(k));
    }
  };
  OPW_DEVICE Vectors At(i64 at) const { return With(LoadNear<kShifted>(grad + at), at); }
  OPW_DEVICE C OneAt(i64 at) const { return OneWith(grad[at], at); }
  // The same if the gradient is already loaded.
  OPW_DEVICE Vectors With(const Wide<T>& g, i64 at) const {
    Vectors out{g, {}};
    if constexpr (kWeight) out.weight = LoadNear<kShifted>(weight + at);
    return out;
  }
  OPW_DEVICE C OneWith(T g, i64 at) const { return kWeight ? Load(g) * Load(weight[at]) : Load(g); }
};

// Maps an element and its slope to the result.
template <bool kLayer, typename C>
struct FinishBackward {
  RowScale<C> scale;
  C slope, product;  // means
  OPW_DEVICE FinishBackward(const BackwardParams& p, const State<C>& s) {
    const C count = static_cast<C>(p.extent);
    scale = {s.x.mean, 1 / Sqrt(s.x.square / count + static_cast<C>(p.eps))};
    slope = s.slopes.sum / count;
    product = s.slopes.product / count * scale.factor;
  }
  OPW_DEVICE C Normal(C x) const { return (kLayer ? x - scale.mean : x) * scale.factor; }
  OPW_DEVICE C OfNormal(C normal, C g) const {
    return ((kLayer ? g - slope : g) - normal * product) * scale.factor;
  }
  OPW_DEVICE C operator()(C x, i64, C g) const { return OfNormal(Normal(x), g); }
  OPW_DEVICE void Keep(const BackwardParams& p, i64 row) const {
    static_cast<RowScale<C>*>(p.scales)[row] = scale;
  }
};

template <typename T, bool kLayer, bool kWeight, int kLanes, int kVectors, bool kShifted>
OPW_DEVICE void BackwardRowsAs(const BackwardParams& p) {
  using C = ComputeOf<T>;
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    const Beside<T, kWeight, kShifted> beside{static_cast<const T*>(p.grad) + row * p.extent,
                                              static_cast<const T*>(p.weight)};
    OnChip<T, kLanes, kVectors, kShifted ? Ends::kTrimmed : Ends::kWhole> x, grad;
    x.Load(static_cast<const T*>(p.x) + row * p.extent, there ? static_cast<int>(p.extent) : 0);
    grad.LoadLike(x, beside.grad);
    C mean = 0;
    if constexpr (kLayer) {
      x.Each([&](C v) { mean += v; });
      mean = GroupReduce<kLanes>(mean, Sum(), C(0)) / static_cast<C>(p.extent);
    }
    x.Forget();
    State<C> s = NoneSeen<C>();
    const auto take = [&](C v, C g) {
      const C apart = v - mean;
      s.x.square = Fma(apart, apart, s.x.square);
      s.slopes.sum += g;
      s.slopes.product = Fma(apart, g, s.slopes.product);
    };
    x.Places(
        [&](int i, int at) {
          const auto slopes = beside.With(grad.vectors[i], at);
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k) take(Load(x.vectors[i].Get(k)), slopes.Get(k));
        },
        [&](int i, int at) { take(Load(x.edges[i]), beside.OneWith(grad.edges[i], at)); });
    x.Forget();
    grad.Forget();
    s = GroupReduce<kLanes>(s, AddStates(), NoneSeen<C>());
    s.x.mean = mean;
    const FinishBackward<kLayer, C> finish(p, s);
    if (there && GroupRank<kLanes>() == 0) finish.Keep(p, row);
    T* const to = static_cast<T*>(p.grad_x) + row * p.extent;
    const bool aligned = Phase(to) == x.phase;
    x.Places(
        [&](int i, int at) {
          const auto slopes = beside.With(grad.vectors[i], at);
          C out[kPerVector<T>];
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k)
            out[k] = finish(Load(x.vectors[i].Get(k)), at + k, slopes.Get(k));
          StoreWide(to + at, RoundAll<T>(out), aligned);
        },
        [&](int i, int at) {
          to[at] = Store<T>(finish(Load(x.edges[i]), at, beside.OneWith(grad.edges[i], at)));
        });
  });
}
template <typename T, bool kLayer, bool kWeight, int kLanes, int kVectors>
OPW_DEVICE void BackwardRows(const BackwardParams& p) {
  const u64 addresses =
      reinterpret_cast<u64>(p.x) | reinterpret_cast<u64>(p.grad) | reinterpret_cast<u64>(p.weight);
  if (((addresses | static_cast<u64>(p.extent) * sizeof(T)) & 15) == 0)
    BackwardRowsAs<T, kLayer, kWeight, kLanes, kVectors, false>(p);
  else
    BackwardRowsAs<T, kLayer, kWeight, kLanes, kVectors, true>(p);
}

// The state of n elements of a row, starting with its position `begin`, for all threads of the
// block.
template <typename T, bool kLayer, bool kWeight>
OPW_DEVICE State<ComputeOf<T>> StateOf(const BackwardParams& p, i64 row, i64 begin, i64 n) {
  using C = ComputeOf<T>;
  const i64 first = row * p.extent + begin;
  const Beside<T, kWeight, true> beside{static_cast<const T*>(p.grad) + first,
                                        static_cast<const T*>(p.weight) + (kWeight ? begin : 0)};
  const T* const x = static_cast<const T*>(p.x) + first;
  State<C> s = NoneSeen<C>();
  ForSpan<0, 4, false, true>(
      x, n,
      [&](i64 at) {
        const C v = Load(x[at]), g = beside.OneAt(at);
        s = JoinStates<kLayer>()(
            s, kLayer ? State<C>{{1, v, 0}, {g, 0}} : State<C>{{1, 0, v * v}, {g, g * v}});
      },
      [&](const Wide<T>* v, int count, i64 at, i64 step) {
        State<C> own{MomentsOfVectors<kLayer>(v, count), {0, 0}};
#pragma unroll
        for (int b = 0; b < count; ++b) {
          const auto slopes = beside.At(at + b * step);
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k) {
            const C g = slopes.Get(k);
            own.slopes.sum += g;
            own.slopes.product = Fma(Load(v[b].Get(k)) - own.x.mean, g, own.slopes.product);
          }
        }
        s = JoinStates<kLayer>()(s, own);
      });
  return GroupReduce<0>(s, JoinStates<kLayer>(), NoneSeen<C>());
}
template <bool kBack, typename T, bool kLayer, bool kWeight>
OPW_DEVICE void WriteBackward(const BackwardParams& p, i64 row, i64 begin, i64 n,
                              const FinishBackward<kLayer, ComputeOf<T>>& finish) {
  const i64 first = row * p.extent + begin;
  const Beside<T, kWeight, true> beside{static_cast<const T*>(p.grad) + first,
                                        static_cast<const T*>(p.weight) + (kWeight ? begin : 0)};
  MapSpanWith<0, kBack, true>(
      static_cast<const T*>(p.x) + first, static_cast<T*>(p.grad_x) + first, n,
      [&](i64 at) { return beside.At(at); }, [&](i64 at) { return beside.OneAt(at); }, finish);
}

template <typename T, bool kLayer, bool kWeight>
OPW_DEVICE void BackwardStreamed(const BackwardParams& p) {
  using C = ComputeOf<T>;
  ForRows<0>(p.rows, [&](i64 row, bool) {
    const FinishBackward<kLayer, C> finish(p, StateOf<T, kLayer, kWeight>(p, row, 0, p.extent));
    if (threadIdx.x == 0) finish.Keep(p, row);
    WriteBackward<true, T, kLayer, kWeight>(p, row, 0, p.extent, finish);
  });
}

// Rows in chunks: one launch that reduces them, and one that writes.
template <typename T, bool kLayer, bool kWeight>
OPW_DEVICE void BackwardReduceChunks(const BackwardParams& p) {
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const i64 row = blockIdx.x;
  const State<ComputeOf<T>> s = StateOf<T, kLayer, kWeight>(p, row, c.begin, c.size);
  if (threadIdx.x == 0)
    static_cast<State<ComputeOf<T>>*>(p.states)[row * p.chunks + blockIdx.y] = s;
}
template <typename T, bool kLayer, bool kWeight>
OPW_DEVICE void BackwardWriteChunks(const BackwardParams& p) {
  using C = ComputeOf<T>;
  const i64 row = blockIdx.x;
  const Chunk c = ChunkOf(p.extent, p.chunk);
  const FinishBackward<kLayer, C> finish(
      p, JoinChunks(static_cast<const State<C>*>(p.states) + row * p.chunks, p.chunks,
                    JoinStates<kLayer>(), NoneSeen<C>()));
  if (blockIdx.y == 0 && threadIdx.x == 0) finish.Keep(p, row);
  WriteBackward<false, T, kLayer, kWeight>(p, row, c.begin, c.size, finish);
}

// ---- Sums over rows

// For block y's rows and columns, kWidth per thread: the sums of grad * normalised x and with
// kLayer of grad.
template <typename T, bool kLayer, int kWidth>
OPW_DEVICE void ColumnSums(const ColumnsParams& p) {
  using C = ComputeOf<T>;
  constexpr int kSums = kLayer ? 2 : 1, kColumns = kColumnLanes * kWidth;
  __shared__ C parts[kSums * kColumnSlices * kColumns];
  const int lane = static_cast<int>(threadIdx.x) % kColumnLanes,
            slice = static_cast<int>(threadIdx.x) / kColumnLanes;
  const i64 column = static_cast<i64>(blockIdx.x) * kColumns + lane * kWidth,
            left = p.extent - column;
  const int count = left < kWidth ? (left < 0 ? 0 : static_cast<int>(left)) : kWidth;
  const T *const x = static_cast<const T*>(p.x) + column, *const grad =
                                                              static_cast<const T*>(p.grad) +
                                                              column;
  const RowScale<C>* const scales = static_cast<const RowScale<C>*>(p.scales);
  C by_weight[kWidth], by_bias[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) by_weight[k] = by_bias[k] = 0;
  const i64 first = static_cast<i64>(blockIdx.y) * p.each,
            end = first + p.each < p.rows ? first + p.each : p.rows;
  const auto take = [&](const RowScale<C>& scale, const Vector<T, kWidth>& v,
                        const Vector<T, kWidth>& g) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const C normal = (kLayer ? Load(v.v[k]) - scale.mean : Load(v.v[k])) * scale.factor;
      by_weight[k] = Fma(Load(g.v[k]), normal, by_weight[k]);
      if constexpr (kLayer) by_bias[k] += Load(g.v[k]);
    }
  };
  if (count == kWidth && p.extent % kWidth == 0 && Aligned<T, kWidth>(x) &&
      Aligned<T, kWidth>(grad)) {
#pragma unroll 4
    for (i64 r = first + slice; r < end; r += kColumnSlices)
      take(scales[r], LoadVector<T, kWidth>(x + r * p.extent),
           LoadVector<T, kWidth>(grad + r * p.extent));
  } else if (count > 0) {
    for (i64 r = first + slice; r < end; r += kColumnSlices)
      take(scales[r], LoadSome<T, kWidth>(x + r * p.extent, count),
           LoadSome<T, kWidth>(grad + r * p.extent, count));
  }
  C* const own = parts + slice * kColumns +
                 lane;  // a column's place is k * kColumnLanes + lane: lanes use different banks
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    own[k * kColumnLanes] = by_weight[k];
    if constexpr (kLayer) own[kColumnSlices * kColumns + k * kColumnLanes] = by_bias[k];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kSums * kColumns;
       i += static_cast<int>(blockDim.x)) {
    const int which = i / kColumns, place = i % kColumns;
    const i64 to = static_cast<i64>(blockIdx.x) * kColumns + place % kColumnLanes * kWidth +
                   place / kColumnLanes;
    const C* const from = parts + which * kColumnSlices * kColumns + place;
    C sum = from[0];
#pragma unroll
    for (int s = 1; s < kColumnSlices; ++s) sum += from[s * kColumns];
    if (to < p.extent)
      static_cast<C*>(
          p.partials)[(which * static_cast<i64>(gridDim.y) + blockIdx.y) * p.extent + to] = sum;
  }
}

// Adds the blocks' sums: of weight if block y is 0, else of bias. Each slice of a block adds sums
// with the stride of the number of slices; the slices are joined in order.
template <typename T>
OPW_DEVICE void ReduceSums(const SumsParams& p) {
  using C = ComputeOf<T>;
  __shared__ C sums[kReduceSlices][kColumnLanes];
  const int lane = static_cast<int>(threadIdx.x) % kColumnLanes,
            slice = static_cast<int>(threadIdx.x) / kColumnLanes;
  T* const y = static_cast<T*>(blockIdx.y == 0 ? p.grad_weight : p.grad_bias);
  for (i64 first = static_cast<i64>(blockIdx.x) * kColumnLanes; first < p.extent;
       first += static_cast<i64>(gridDim.x) * kColumnLanes) {
    const i64 column = first + lane;
    const C* const x = static_cast<const C*>(p.partials) + blockIdx.y * p.parts * p.extent +
                       (column < p.extent ? column : first);
    C sum = 0;
#pragma unroll 8
    for (i64 part = slice; part < p.parts; part += kReduceSlices) sum += x[part * p.extent];
    sums[slice][lane] = sum;
    __syncthreads();
    if (slice == 0 && column < p.extent) {
#pragma unroll
      for (int s = 1; s < kReduceSlices; ++s) sum += sums[s][lane];
      y[column] = Store<T>(sum);
    }
    __syncthreads();
  }
}

}  // namespace opw::norm

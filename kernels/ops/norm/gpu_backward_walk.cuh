// layer_norm_backward and rms_norm_backward of rows of whole vectors. Groups of threads walk the
// rows, and read each row once: the next one is loaded while this one is processed. A thread has
// the same columns of all its rows. Their sums over rows stay in its registers; their weights stay
// in the first-level cache.
#include "kernels/ops/norm/gpu_backward.cuh"

namespace opw::norm {

// Sums of a row once its mean is known.
template <typename C>
struct RowSums {
  C square;
  Slopes<C> slopes;
};
template <typename C>
OPW_DEVICE RowSums<C> ShuffleXor(const RowSums<C>& s, int mask) {
  return {opw::ShuffleXor(s.square, mask),
          {opw::ShuffleXor(s.slopes.sum, mask), opw::ShuffleXor(s.slopes.product, mask)}};
}
template <typename C>
OPW_DEVICE RowSums<C> ShuffleFrom(const RowSums<C>& s, int lane) {
  return {opw::ShuffleFrom(s.square, lane),
          {opw::ShuffleFrom(s.slopes.sum, lane), opw::ShuffleFrom(s.slopes.product, lane)}};
}
struct AddRowSums {
  template <typename C>
  __device__ RowSums<C> operator()(const RowSums<C>& a, const RowSums<C>& b) const {
    return {a.square + b.square,
            {a.slopes.sum + b.slopes.sum, a.slopes.product + b.slopes.product}};
  }
};

// Loads from an address that is aligned for vectors, or from any.
template <bool kAligned, typename T>
OPW_DEVICE Wide<T> LoadWide(const T* p) {
  if constexpr (kAligned) return LoadAligned(p);
  T elements[kPerVector<T>];
#pragma unroll
  for (int k = 0; k < kPerVector<T>; ++k) elements[k] = p[k];
  Wide<T> out;
  memcpy(out.words, elements, 16);
  return out;
}

// A thread's columns: vectors of a row.
template <typename T, int kLanes, int kVectors>
struct WalkedColumns {
  int extent;
  // Calls f(i, position of the first element) for vector i.
  template <typename F>
  OPW_DEVICE void Each(const F& f) const {
    const int own = GroupRank<kLanes>() * kPerVector<T>,
              apart = GroupSize<kLanes>() * kPerVector<T>;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (own + i * apart < extent) f(i, own + i * apart);
    }
  }
};
// The gradient by a normalised element, from the element's gradient and element k of its vector of
// weights.
template <bool kWeight, typename C, typename W>
OPW_DEVICE C SlopeOf(C g, const W& weight, int k) {
  if constexpr (kWeight)
    return g * Load(weight.Get(k));
  else
    return g;
}
// The vectors of one row.
template <typename T, int kVectors>
struct Vectors {
  Wide<T> v[kVectors];
  OPW_DEVICE void Forget() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i] = Anew(v[i]);
  }
};

// Adds the values of the block's groups for their columns, group by group, and writes the result:
// `which` of the two sums. REQUIRES: a barrier between two calls.
template <typename C, int kLanes, int kVectors, int kWidth>
OPW_DEVICE void PutSums(const BackwardParams& p, int which, C (&sums)[kVectors][kWidth]) {
  const int vectors = static_cast<int>(p.extent) / kWidth;
  C* const to =
      static_cast<C*>(p.partials) + (which * static_cast<i64>(gridDim.x) + blockIdx.x) * p.extent;
  if constexpr (kLanes == 0) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (vector < vectors) to[vector * kWidth + k] = sums[i][k];
      }
    }
  } else {
    constexpr int kSlots = kLanes * kVectors;
    __shared__ C
        parts[kWidth][kSlots];  // of a vector's elements, so that lanes use different banks
#pragma unroll
    for (int mask = kLanes; mask < OPW_WARP; mask *= 2) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[i][k] += opw::ShuffleXor(sums[i][k], mask);
      }
    }
    for (int w = 0; w < static_cast<int>(blockDim.x) / OPW_WARP; ++w) {
      if (Warp() == w && Lane() < kLanes) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            C& part = parts[k][i * kLanes + Lane()];
            part = w == 0 ? sums[i][k] : part + sums[i][k];
          }
        }
      }
      __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < vectors * kWidth;
         i += static_cast<int>(blockDim.x))
      to[i] = parts[i % kWidth][i / kWidth];
  }
}

template <typename T, bool kLayer, bool kWeight, bool kResidual, int kLanes, int kVectors,
          bool kAligned>
OPW_DEVICE void BackwardWalkedAs(const BackwardParams& p) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>;
  const WalkedColumns<T, kLanes, kVectors> columns{static_cast<int>(p.extent)};
  Vectors<T, kVectors> x, grad, next_x, next_grad;
  const auto weights = [&](int at) {
    if constexpr (kWeight)
      return LoadWide<kAligned>(static_cast<const T*>(p.weight) + at);
    else
      return NothingBeside{};
  };
  C by_weight[kVectors][kWidth], by_bias[kVectors][kWidth];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) by_weight[i][k] = by_bias[i][k] = 0;
  }
  const auto fetch = [&](i64 row) {
    if (row >= p.rows) return;
    columns.Each([&](int i, int at) {
      next_x.v[i] = LoadWide<kAligned>(static_cast<const T*>(p.x) + row * p.extent + at);
      next_grad.v[i] = LoadWide<kAligned>(static_cast<const T*>(p.grad) + row * p.extent + at);
    });
  };
  const int size = GroupSize<kLanes>(), groups = static_cast<int>(blockDim.x) / size,
            group = static_cast<int>(threadIdx.x) / size;
  const int before = kLanes == 0 ? 0 : Lane() / size;  // groups of this warp; they run together
  const i64 step = static_cast<i64>(gridDim.x) * groups;
  i64 row = static_cast<i64>(blockIdx.x) * groups + group;
  if constexpr (kAligned) fetch(row);
  for (; row - before < p.rows; row += step) {
    const bool there = row < p.rows;
    if constexpr (!kAligned)
      fetch(row);  // loads of single elements need the registers of another row
    if (there) {
      x = next_x;
      grad = next_grad;
    }
    if constexpr (kAligned) fetch(row + step);
    C mean = 0;
    if constexpr (kLayer) {
      columns.Each([&](int i, int) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) mean += Load(x.v[i].Get(k));
      });
      mean = GroupReduce<kLanes>(mean, Sum(), C(0)) / static_cast<C>(p.extent);
    }
    x.Forget();
    RowSums<C> s{0, {0, 0}};
    columns.Each([&](int i, int at) {
      const auto weight = weights(at);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C v = Load(x.v[i].Get(k)) - mean,
                g = SlopeOf<kWeight>(Load(grad.v[i].Get(k)), weight, k);
        s.square = Fma(v, v, s.square);
        s.slopes.sum += g;
        s.slopes.product = Fma(v, g, s.slopes.product);
      }
    });
    x.Forget();
    grad.Forget();
    s = GroupReduce<kLanes>(s, AddRowSums(), RowSums<C>{0, {0, 0}});
    if (!there) continue;
    const FinishBackward<kLayer, C> finish(p, {{0, mean, s.square}, s.slopes});
    columns.Each([&](int i, int at) {
      const auto weight = weights(at);
      C out[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C normal = finish.Normal(Load(x.v[i].Get(k))), g = Load(grad.v[i].Get(k));
        by_weight[i][k] = Fma(g, normal, by_weight[i][k]);
        if constexpr (kLayer) by_bias[i][k] += g;
        out[k] = finish.OfNormal(normal, SlopeOf<kWeight>(g, weight, k));
      }
      if constexpr (kResidual) {
        const Wide<T> beside =
            LoadWide<kAligned>(static_cast<const T*>(p.residual) + row * p.extent + at);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out[k] += Load(beside.Get(k));
      }
      StoreWide(static_cast<T*>(p.grad_x) + row * p.extent + at, RoundAll<T>(out), kAligned);
    });
  }
  PutSums<C, kLanes>(p, 0, by_weight);
  if constexpr (kLayer) {
    __syncthreads();
    PutSums<C, kLanes>(p, 1, by_bias);
  }
}
// A row has at most kVectors vectors per thread of its group. The group is kLanes lanes of a warp
// or, with 0, the block.
template <typename T, bool kLayer, bool kWeight, bool kResidual, int kLanes, int kVectors>
OPW_DEVICE void BackwardWalked(const BackwardParams& p) {
  const u64 addresses = reinterpret_cast<u64>(p.x) | reinterpret_cast<u64>(p.grad) |
                        reinterpret_cast<u64>(p.weight) | reinterpret_cast<u64>(p.residual) |
                        reinterpret_cast<u64>(p.grad_x);
  if ((addresses & 15) == 0)
    BackwardWalkedAs<T, kLayer, kWeight, kResidual, kLanes, kVectors, true>(p);
  else
    BackwardWalkedAs<T, kLayer, kWeight, kResidual, kLanes, kVectors, false>(p);
}

}  // namespace opw::norm

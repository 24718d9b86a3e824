// What kernels of products call: a few rows held in shared memory, normalised on the way there, and
// weights that are read once, each row of theirs by 32 threads.
#include "kernels/fused/primitives.cuh"
#include "kernels/ops/gpu/rows.cuh"

namespace opw::products {

inline constexpr int kThreads = 256, kLanes = 32, kGroups = kThreads / kLanes;

// What the rows are before they meet weights: [rows, terms], dense; terms are whole vectors.
struct Rows {
  const void* x;
  const void* residual;  // of those that add one
  void* sum;             // the sum with it
  const void* weight;    // of the norm, or null
  i64 terms;
  double eps;
};

template <bool kAligned, typename T>
OPW_DEVICE Wide<T> LoadFrom(const T* p) {
  if constexpr (kAligned) {
    return LoadAligned(p);
  } else {
    T part[kPerVector<T>];
#pragma unroll
    for (int k = 0; k < kPerVector<T>; ++k) part[k] = p[k];
    Wide<T> out;
    memcpy(out.words, part, 16);
    return out;
  }
}

// The rows in shared memory, kM of up to kVectors vectors, and what each thread adds to the sums of
// their squares.
template <typename T, int kM, int kVectors>
struct Held {
  Wide<T> rows[kM * kVectors];
  float squares[kM][kThreads];
};

// What rms_norm divides by is known only once all of a row is read, so sums are multiplied by it
// behind the products. Not of f16, in which what is not divided may overflow.
template <typename T>
inline constexpr bool kDividesLate = !kSame<T, f16>;

// The products of the rows, kM of up to kVectors vectors, with the weights' rows that `work` has, a
// unit of kEach of them at a time for each group of lanes:
//   work.units                              how many
//   work.Find(unit, const T* (&rows)[kEach])    where they are
//   work.Begin(unit, held)                      reads what Finish will want
//   work.Finish(unit, sums, held, there)        gets the sums; `there` says whether this thread
//                                               writes what comes of them
// A thread asks for kBatch vectors of each row at a time, for a unit's first before it is done with
// the unit in front, and for those of the first unit before the kernels in front of this one have
// ended: none of these writes weights (GpuDevice::LaunchShape::reads_early).
template <typename T, int kM, int kVectors, int kBatch, int kEach, bool kNorm, bool kAdds,
          bool kAligned, typename Work>
OPW_DEVICE void Multiply(const Rows& r, const Work& work, Held<T, kM, kVectors>& held) {
  constexpr int kWidth = kPerVector<T>, kOwn = (kVectors + kThreads - 1) / kThreads;
  constexpr bool kEarly = kOwn <= 2;  // a thread's part of the rows fits its registers
  constexpr bool kLate = kNorm && kDividesLate<T>;
  const int vectors = static_cast<int>(r.terms / kWidth), thread = static_cast<int>(threadIdx.x),
            lane = GroupRank<kLanes>(), group = thread / kLanes;
  const i64 last = work.units - 1, step = static_cast<i64>(gridDim.x) * kGroups;
  const auto unit_of = [&](i64 first) {
    const i64 unit = first + group;
    return unit < last ? unit : last;  // some other's, for nothing: all threads stay together
  };
  // ---- What is there already
  const T* rows[kEach];
  Wide<T> weights[kEach][kBatch];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int p = 0; p < kEach; ++p) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int v = begin + b * kLanes + lane;
        if (v < vectors) weights[p][b] = LoadFrom<kAligned>(rows[p] + v * kWidth);
      }
    }
  };
  i64 first = static_cast<i64>(blockIdx.x) * kGroups;
  work.Find(unit_of(first), rows);
  fetch(0);
  if (kNorm && r.weight != nullptr && thread % 8 == 0) {
    for (int v = thread; v < vectors; v += kThreads)
      Prefetch(static_cast<const T*>(r.weight) + v * kWidth);
  }

  // ---- The rows
  AwaitPrevious();
  Wide<T> xs[kM][kEarly ? kOwn : 1], residuals[kM][kEarly ? kOwn : 1], scales[kEarly ? kOwn : 1];
  const auto load = [&](const void* p, int m, int v) {
    return LoadFrom<kAligned>(static_cast<const T*>(p) + m * r.terms + v * kWidth);
  };
  if constexpr (kEarly) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int v = thread + i * kThreads;
      if (v >= vectors) continue;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        xs[m][i] = load(r.x, m, v);
        if constexpr (kAdds) residuals[m][i] = load(r.residual, m, v);
      }
      if (kNorm && r.weight != nullptr) scales[i] = load(r.weight, 0, v);
    }
  }
  typename Work::Held of_unit, of_next;
  work.Begin(unit_of(first), of_unit);
  float square[kM] = {};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int v = thread + i * kThreads;
    if (v >= vectors) continue;
    Wide<T> scale = {};
    if (kLate && r.weight != nullptr)
      scale = kEarly ? scales[kEarly ? i : 0] : load(r.weight, 0, v);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      Wide<T> x = kEarly ? xs[m][kEarly ? i : 0] : load(r.x, m, v);
      if constexpr (kAdds) {
        x = MapPairs(x, kEarly ? residuals[m][kEarly ? i : 0] : load(r.residual, m, v),
                     [](float a, float b) { return a + b; });
        if (blockIdx.x == 0)
          StoreWide(static_cast<T*>(r.sum) + m * r.terms + v * kWidth, x, kAligned);
      }
      if constexpr (kNorm) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) square[m] = Fma(Load(x.Get(k)), Load(x.Get(k)), square[m]);
      }
      if (kLate && r.weight != nullptr)
        x = MapPairs(x, scale, [](float a, float b) { return a * b; });
      held.rows[m * kVectors + v] = x;
    }
  }
  if constexpr (kNorm) {
#pragma unroll
    for (int m = 0; m < kM; ++m) held.squares[m][thread] = square[m];
  }
  __syncthreads();
  // Each group adds up all squares, where it can along with the products.
  if constexpr (kNorm) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      square[m] = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) square[m] += held.squares[m][g * kLanes + lane];
    }
  }
  const auto factor = [&](int m) {
    return InverseSqrtFor<T>(GroupReduce<kLanes>(square[m], Sum(), 0.0f) /
                                 static_cast<float>(r.terms) +
                             static_cast<float>(r.eps));
  };
  if constexpr (kNorm && !kLate) {
    float factors[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) factors[m] = factor(m);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int v = thread + i * kThreads;
      if (v >= vectors) continue;
      Wide<T> scale = {};
      if (r.weight != nullptr) scale = kEarly ? scales[kEarly ? i : 0] : load(r.weight, 0, v);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Wide<T>& x = held.rows[m * kVectors + v];
        if (r.weight != nullptr)
          x = MapPairs(x, scale, [&](float a, float b) { return a * factors[m] * b; });
        else
          x = MapPairs(x, x, [&](float a, float) { return a * factors[m]; });
      }
    }
    __syncthreads();
  }

  // ---- The products
#pragma unroll 1
  for (; first <= last; first += step) {
    const bool ends = first + step > last;
    float sums[kEach][kM] = {};
#pragma unroll 1
    for (int begin = 0;;) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int v = begin + b * kLanes + lane;
        if (v >= vectors) continue;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const Wide<T> x = held.rows[m * kVectors + v];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
#pragma unroll
            for (int p = 0; p < kEach; ++p)
              sums[p][m] = Fma(Load(x.Get(k)), Load(weights[p][b].Get(k)), sums[p][m]);
          }
        }
      }
      begin += kBatch * kLanes;
      if (begin >= vectors) break;
      fetch(begin);
      WarpBarrier();  // compilers put the loads off no further, so all are on their way at once
    }
    if (!ends) {
      work.Find(unit_of(first + step), rows);
      fetch(0);
      WarpBarrier();
      work.Begin(unit_of(first + step), of_next);
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int p = 0; p < kEach; ++p) sums[p][m] = GroupReduce<kLanes>(sums[p][m], Sum(), 0.0f);
      if constexpr (kLate) {
        const float by = factor(m);
#pragma unroll
        for (int p = 0; p < kEach; ++p) sums[p][m] *= by;
      }
    }
    work.Finish(unit_of(first), sums, of_unit, lane == 0 && first + group <= last);
    of_unit = of_next;
  }
}

// A pair of elements turned by an angle.
OPW_DEVICE void Turn(float& a, float& b, float sine, float cosine) {
  const float first = Fma(a, cosine, -(b * sine));
  b = Fma(b, cosine, a * sine);
  a = first;
}

}  // namespace opw::products

// cumsum: rows and columns, in one launch, or in chunks. A reduction then first computes the sums
// of the chunks (reduce, then scan).
#include "kernels/ops/gpu/scan.cuh"
#include "kernels/ops/reduce/gpu_ops.cuh"

namespace opw::reduce {

// Rows (inner is 1), each by kLanes lanes of a warp or, with 0, by one block per chunk.
template <typename T, int kLanes>
OPW_DEVICE void ScanRows(const ScanParams& p) {
  using A = typename SumOf<T>::State;
  constexpr int kWidth = kPerVector<T>;
  const i64 begin = static_cast<i64>(blockIdx.y) * p.chunk,
            n = begin + p.chunk < p.extent ? p.chunk : p.extent - begin;
  ForRows<kLanes>(p.columns, [&](i64 row, bool there) {
    const T* const x = static_cast<const T*>(p.x) + row * p.extent + begin;
    T* const y = static_cast<T*>(p.y) + row * p.extent + begin;
    A carry = 0;
    if (kLanes == 0 && p.chunks > 1) {
      const A* const sums = static_cast<const A*>(p.sums) + row * p.chunks;
      for (i64 c = threadIdx.x; c < blockIdx.y; c += blockDim.x) carry += sums[c];
      carry = GroupReduce<kLanes>(carry, Sum(), A(0));
    }
    // Threads process vectors between 16-byte boundaries of x, with the same number of passes for
    // all rows, so that lanes stay together.
    const i64 lead = Phase(x) / static_cast<int>(sizeof(T)),
              vectors = (n + 2 * (kWidth - 1)) / kWidth;
    const bool aligned = Phase(x) == Phase(y);
    for (i64 base = 0; base < vectors; base += GroupSize<kLanes>()) {
      const i64 at = (base + GroupRank<kLanes>()) * kWidth - lead;
      const bool whole = there && at >= 0 && at + kWidth <= n;
      const auto inside = [&](int k) { return there && at + k >= 0 && at + k < n; };
      Wide<T> in{};
      if (whole) in = LoadAligned(x + at);
      A sums[kWidth], sum = 0;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (whole)
          sum += static_cast<A>(Load(in.Get(k)));
        else if (inside(k))
          sum += static_cast<A>(Load(x[at + k]));
        sums[k] = sum;
      }
      A all;
      const A before = carry + SumBefore<kLanes>(sum, all);
      carry += all;
      if (whole && aligned && (kIsFloat<T> || kIsNarrow<T>)) {
        if constexpr (kIsFloat<ComputeOf<T>>) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] = before + sums[k];
          StoreWide(y + at, RoundAll<T>(sums), true);
        }
      } else {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          if (inside(k)) y[at + k] = Store<T>(before + sums[k]);
        }
      }
    }
  });
}

// Columns, one thread each: neighbours read neighbouring elements.
template <typename T>
OPW_DEVICE void ScanColumns(const ScanParams& p) {
  using A = typename SumOf<T>::State;
  constexpr int kBatch = 8;
  const i64 column = Index();
  if (column >= p.columns) return;
  const i64 outer = column / p.inner, i = column - outer * p.inner;
  const i64 begin = static_cast<i64>(blockIdx.y) * p.chunk,
            n = begin + p.chunk < p.extent ? p.chunk : p.extent - begin;
  const i64 base = (outer * p.extent + begin) * p.inner + i;
  const T* const x = static_cast<const T*>(p.x) + base;
  T* const y = static_cast<T*>(p.y) + base;
  A sum = 0;
  if (p.chunks > 1) {
    const A* const sums = static_cast<const A*>(p.sums) + outer * p.chunks * p.inner + i;
    for (i64 c = 0; c < blockIdx.y; ++c) sum += sums[c * p.inner];
  }
  i64 at = 0;
  for (; at + kBatch <= n; at += kBatch) {
    T v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) v[b] = x[(at + b) * p.inner];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      sum += static_cast<A>(Load(v[b]));
      y[(at + b) * p.inner] = Store<T>(sum);
    }
  }
  for (; at < n; ++at) {
    sum += static_cast<A>(Load(x[at * p.inner]));
    y[at * p.inner] = Store<T>(sum);
  }
}

}  // namespace opw::reduce

// kv_attention of any size, with one block per row and one thread per position, page after page.
// Also the kernel that joins the splits of the other forms.
#include "kernels/ops/attention/gpu_kv_parts.cuh"

namespace opw::attention {

template <typename T>
OPW_DEVICE void KvByPages(const KvParams& p) {
  using C = ComputeOf<T>;
  __shared__ C weights[kKvPageThreads];
  const i64 thread = threadIdx.x;
  for (i64 row = blockIdx.x; row < p.slices * p.rows; row += gridDim.x) {
    const Slice s = SliceOf(p, row / p.rows, thread == 0);
    const Seen seen = SeenBy(p, row % p.rows, s.length);
    const T* const query = static_cast<const T*>(p.query) + row * p.depth;
    for (i64 c0 = 0; c0 == 0 || c0 < p.value_depth; c0 += kKvPageThreads) {
      C most = -Infinity<C>(), total = 0, sum = 0;
      for (i64 begin = seen.first, end = 0; begin < seen.last; begin = end) {
        end = (begin / p.page + 1) * p.page;
        end = end < seen.last ? end : seen.last;
        const i64 first = RowOf(p, s, begin, thread == 0);
        if (first < 0) continue;
        for (i64 j0 = 0; j0 < end - begin; j0 += kKvPageThreads) {
          const int n = end - begin - j0 < kKvPageThreads ? static_cast<int>(end - begin - j0)
                                                          : kKvPageThreads;
          C score = -Infinity<C>();
          if (thread < n) {
            const T* const key = static_cast<const T*>(p.key) + (first + j0 + thread) * p.depth;
            C product = 0;
            for (i64 l = 0; l < p.depth; ++l) product = Fma(Load(query[l]), Load(key[l]), product);
            score = product * static_cast<C>(p.scale);
          }
          const C larger = Larger(most, BlockReduce(score, Max(), -Infinity<C>())),
                  base = FiniteOrZero(larger), factor = Exp(most - base);
          most = larger;
          __syncthreads();  // the weights before these are read
          weights[thread] = ExpFor<T>(score - base);
          total = Fma(total, factor, BlockReduce(weights[thread], Sum(), C(0)));
          if (c0 + thread >= p.value_depth) continue;
          const T* const value =
              static_cast<const T*>(p.value) + (first + j0) * p.value_depth + c0 + thread;
          sum *= factor;
          for (int i = 0; i < n; ++i) sum = Fma(weights[i], Load(value[i * p.value_depth]), sum);
        }
      }
      if (c0 + thread < p.value_depth)
        static_cast<T*>(p.output)[row * p.value_depth + c0 + thread] =
            Store<T>(total == 0 ? C(0) : sum / total);
      if (c0 + thread == 0) static_cast<C*>(p.log_sum_exp)[row] = FiniteOrZero(most) + Log(total);
    }
  }
}

// One block per row. Groups of threads, each with one thread per column, take splits in turn.
template <typename T>
OPW_DEVICE void KvJoin(const KvParams& p) {
  using C = ComputeOf<T>;
  __shared__ C weights[kKvMostSplits], parts[kKvJoinThreads];
  const i64 row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), splits = static_cast<int>(p.splits),
            depth = static_cast<int>(p.value_depth);
  const C* const partials = static_cast<const C*>(p.partials) + row * splits * 2;
  const C* const sums = static_cast<const C*>(p.partial_sums) + row * splits * depth;
  const C own = thread < splits ? partials[thread * 2] : -Infinity<C>();
  const C base = FiniteOrZero(BlockReduce(own, Max(), -Infinity<C>()));
  const C weight = Exp(own - base),
          total =
              BlockReduce(thread < splits ? partials[thread * 2 + 1] * weight : C(0), Sum(), C(0));
  if (thread < splits) weights[thread] = weight;
  __syncthreads();
  const int groups = kKvJoinThreads / depth, group = thread / depth,
            column = thread - group * depth;
  C sum = 0;
  if (group < groups) {
#pragma unroll 8
    for (int s = group; s < splits; s += groups)
      sum = Fma(sums[static_cast<i64>(s) * depth + column], weights[s], sum);
  }
  parts[thread] = sum;
  __syncthreads();
  if (group == 0) {
    for (int g = 1; g < groups; ++g) sum += parts[g * depth + column];
    static_cast<T*>(p.output)[row * depth + column] = Store<T>(total == 0 ? C(0) : sum / total);
  }
  if (thread == 0) static_cast<C*>(p.log_sum_exp)[row] = base + Log(total);
}

}  // namespace opw::attention

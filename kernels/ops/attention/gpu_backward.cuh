// The gradients of attention, as portable as attention. Each has one launch, in which a tile of its
// rows meets all tiles of the other side. Weights are computed again from logsumexp, so no score is
// stored and every sum has one order. After Dao, "FlashAttention-2" (2023).
#include "kernels/ops/attention/gpu_tiles.cuh"

namespace opw::attention {

enum Gradient : int { kOfQuery, kOfKey, kOfValue };

// sum(grad * output) of one query. This thread adds every `lanes`-th element, starting with `lane`.
template <typename T>
OPW_DEVICE ComputeOf<T> PartOfDelta(const BackwardParams& p, const T* grad, const T* output,
                                    int lane, int lanes) {
  ComputeOf<T> sum = 0;
  for (i64 l = lane; l < p.value_depth; l += lanes)
    sum = Fma(Load(grad[l * p.grad_column]), Load(output[l * p.output_column]), sum);
  return sum;
}

// M: boolean, the element type, or NoMask. blockIdx.x: tiles of 64 rows of the gradient; y: 64 of
// its columns, in a loop; z: heads, in a loop. 256 threads.
template <typename T, typename M, int kGradient>
OPW_DEVICE void Backward(const BackwardParams& p) {
  using C = ComputeOf<T>;
  constexpr bool kQueries = kGradient == kOfQuery;  // the rows are queries
  constexpr int kRows = 4, kTile = kLanes * kRows, kColumns = 64, kParts = kColumns / kLanes,
                kPerQuery = kThreads / kOthers;
  __shared__ C weights[kTile][kOthers + 1];
  __shared__ C staged[kDepth<C> * (kTile + kOthers + 2)];
  __shared__ C logs[kQueries ? kTile : kOthers], deltas[kQueries ? kTile : kOthers];
  const int row = static_cast<int>(threadIdx.x) / kLanes * kRows,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const i64 r0 = static_cast<i64>(blockIdx.x) * kTile, rows = kQueries ? p.queries : p.keys,
            columns = kGradient == kOfValue ? p.value_depth : p.depth;
  const i64 left = rows - r0 < kTile ? rows - r0 : kTile,
            shift = p.keys - p.queries;  // query i has key position i + shift
  // The others that at least one row of the tile meets.
  i64 first = 0, last = kQueries ? p.keys : p.queries;
  if constexpr (kQueries) {
    if (p.window > 0 && r0 + shift >= p.window) first = r0 + shift - p.window + 1;
    if (p.causal != 0 && r0 + left + shift < last) last = r0 + left + shift;
  } else {
    if (p.causal != 0 && r0 > shift) first = r0 - shift;
    if (p.window > 0 && r0 + left - 1 - shift + p.window < last)
      last = r0 + left - 1 - shift + p.window;
  }
  const C scale = static_cast<C>(p.scale);
  // Fills logs and deltas of 64 queries starting with i0; only the first `there` exist.
  const auto prepare = [&](const C* log, const T* grad, const T* output, i64 i0, i64 there) {
    const int q = static_cast<int>(threadIdx.x) / kPerQuery,
              part = static_cast<int>(threadIdx.x) % kPerQuery;
    C delta = 0;
    if (kGradient != kOfValue && q < there)
      delta = PartOfDelta(p, grad + (i0 + q) * p.grad_row, output + (i0 + q) * p.output_row, part,
                          kPerQuery);
#pragma unroll
    for (int apart = kPerQuery / 2; apart > 0; apart /= 2) delta += ShuffleXor(delta, apart);
    __syncthreads();  // the previous ones have been read
    if (part == 0) {
      logs[q] = q < there ? log[(i0 + q) * p.log_row] : C(0);
      deltas[q] = delta;
    }
    __syncthreads();
  };
  for (i64 h = blockIdx.z; h < p.heads; h += gridDim.z) {
    i64 at[8];
    OffsetsAt<true>(p.axes, h, at);
    const T* const key = static_cast<const T*>(p.key) + at[2];
    const T* const value = static_cast<const T*>(p.value) + at[3];
    for (i64 c0 = static_cast<i64>(blockIdx.y) * kColumns; c0 < columns;
         c0 += static_cast<i64>(gridDim.y) * kColumns) {
      C sums[kRows][kParts] = {};
      for (i64 g = 0; g < p.group; ++g) {
        const T* const grad = static_cast<const T*>(p.grad) + at[0] + g * p.group_grad;
        const T* const query = static_cast<const T*>(p.query) + at[1] + g * p.group_query;
        const T* const output = static_cast<const T*>(p.output) + at[4] + g * p.group_output;
        const C* const log = static_cast<const C*>(p.log_sum_exp) + at[5] + g * p.group_log;
        const i64 mask_at = at[6] + g * p.group_mask;
        if constexpr (kQueries) prepare(log, grad, output, r0, left);
        for (i64 o0 = first; o0 < last; o0 += kOthers) {
          const i64 i0 = kQueries ? r0 : o0, j0 = kQueries ? o0 : r0, others = last - o0;
          const Side<T> queries{query + i0 * p.query_row, kQueries ? left : others, p.query_row,
                                p.query_column};
          const Side<T> keys{key + j0 * p.key_row, kQueries ? others : left, p.key_row,
                             p.key_column};
          const Side<T> grads{grad + i0 * p.grad_row, kQueries ? left : others, p.grad_row,
                              p.grad_column};
          const Side<T> values{value + j0 * p.value_row, kQueries ? others : left, p.value_row,
                               p.value_column};
          if constexpr (!kQueries) prepare(log, grad, output, o0, others);
          C scores[kRows][kEach] = {}, slopes[kRows][kEach] = {};
          AddProducts<kRows>(scores, kQueries ? queries : keys, kQueries ? keys : queries, p.depth,
                             staged);
          if constexpr (kGradient != kOfValue)
            AddProducts<kRows>(slopes, kQueries ? grads : values, kQueries ? values : grads,
                               p.value_depth, staged);
          __syncthreads();  // the previous weights have been read
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int e = 0; e < kEach; ++e) {
              const int other = lane + e * kLanes, q = kQueries ? row + r : other;
              const i64 i = kQueries ? r0 + row + r : o0 + other,
                        j = kQueries ? o0 + other : r0 + row + r;
              bool takes_part = row + r < left && other < others &&
                                (p.causal == 0 || j <= i + shift) &&
                                (p.window == 0 || j > i + shift - p.window);
              C score = scores[r][e] * scale;
              if constexpr (!kSame<M, NoMask>) {
                if (takes_part) {
                  const auto mask = Load(
                      static_cast<const M*>(p.mask)[mask_at + i * p.mask_row + j * p.mask_column]);
                  if constexpr (kSame<M, boolean>)
                    takes_part = mask;
                  else
                    score += mask;
                }
              }
              const C weight = takes_part && score != -Infinity<C>() ? Exp(score - logs[q]) : C(0);
              weights[row + r][other] = kGradient == kOfValue ? weight
                                        : weight == 0         ? C(0)
                                                              : weight * (slopes[r][e] - deltas[q]);
            }
          }
          AddWeighted<kRows, kColumns>(
              sums, weights,
              kGradient == kOfQuery
                  ? Side<T>{keys.from + c0 * p.key_column, others, p.key_row, p.key_column}
              : kGradient == kOfKey
                  ? Side<T>{queries.from + c0 * p.query_column, others, p.query_row, p.query_column}
                  : Side<T>{grads.from + c0 * p.grad_column, others, p.grad_row, p.grad_column},
              columns - c0, staged);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r >= left) continue;
        T* const result = static_cast<T*>(p.result) + at[7] + (r0 + row + r) * p.result_row;
#pragma unroll
        for (int e = 0; e < kParts; ++e) {
          const i64 c = c0 + lane + e * kLanes;
          if (c < columns)
            result[c * p.result_column] =
                Store<T>(kGradient == kOfValue ? sums[r][e] : sums[r][e] * scale);
        }
      }
    }
  }
}

}  // namespace opw::attention

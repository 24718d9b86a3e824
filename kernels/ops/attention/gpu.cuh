// Portable attention, for every element type, size and stride: tiles of queries against tiles of keys through shared memory, with a running maximum and
// sum of each query, so that no score is stored. After Dao et al., "FlashAttention" (2022); Milakov and Gimelshein, "Online normalizer calculation for
// softmax" (2018).
#include "kernels/ops/attention/gpu_params.h"
#include "kernels/ops/gpu/rows.cuh"

namespace opw::attention {

struct NoMask {};

inline constexpr int kThreads = 256, kKeys = 64, kLanes = 16, kEach = kKeys / kLanes;  // 16 neighbours share rows of queries

// kInner by kOuter elements into shared memory, neighbours along the inner axis by neighbouring threads; zeros beyond the `inner` and `outer` that are there.
template <int kInner, int kOuter, typename T, typename C>
OPW_DEVICE void StageAlong(C* to, int to_inner, int to_outer, const T* from, i64 inner, i64 outer, i64 from_inner, i64 from_outer) {
  const int i = static_cast<int>(threadIdx.x) % kInner;
  const int there = i < inner ? static_cast<int>(outer < kOuter ? outer : kOuter) : 0;
  const int first = static_cast<int>(threadIdx.x) / kInner;
  from += i * from_inner + first * from_outer;
  const i64 step = from_outer * (kThreads / kInner);
#pragma unroll 4
  for (int o = first; o < kOuter; o += kThreads / kInner, from += step) to[i * to_inner + o * to_outer] = o < there ? Load(*from) : C(0);
}
// kRows by kColumns elements into to[column][row], with kPitch between columns.
template <int kRows, int kColumns, int kPitch, typename T, typename C>
OPW_DEVICE void Stage(C* to, const T* from, i64 rows, i64 columns, i64 row_stride, i64 column_stride) {
  if (column_stride == 1) StageAlong<kColumns, kRows>(to, kPitch, 1, from, columns, rows, column_stride, row_stride);
  else StageAlong<kRows, kColumns>(to, 1, kPitch, from, rows, columns, row_stride, column_stride);
}

// M: boolean, the element type, or NoMask. 16 * kRows queries and kColumns columns of value a block. blockIdx.x: tiles of queries, the last first, which
// see the most keys of a causal call; y: columns of value, in a loop; z: heads, in a loop. 256 threads.
template <typename T, typename M, int kRows, int kColumns>
OPW_DEVICE void Forward(const Params& p) {
  using C = ComputeOf<T>;
  constexpr int kQueries = kLanes * kRows, kDepth = 64 / static_cast<int>(sizeof(C)), kParts = kColumns / kLanes;
  constexpr int kScored = kQueries + kKeys + 2;
  __shared__ C weights[kQueries][kKeys + 1];
  __shared__ C staged[kDepth * (kScored > kColumns ? kScored : kColumns)];
  C* const queries = staged;
  C* const keys = staged + kDepth * (kQueries + 1);
  const int row = static_cast<int>(threadIdx.x) / kLanes * kRows, lane = static_cast<int>(threadIdx.x) % kLanes;
  const i64 i0 = static_cast<i64>(gridDim.x - 1 - blockIdx.x) * kQueries, left = p.queries - i0 < kQueries ? p.queries - i0 : kQueries;
  const i64 own = i0 + p.keys - p.queries;  // the position that is the first query's own
  const i64 first = p.window > 0 && own >= p.window ? own - p.window + 1 : 0, last = p.causal != 0 && own + left < p.keys ? own + left : p.keys;
  const C scale = static_cast<C>(p.scale);
  for (i64 h = blockIdx.z; h < p.heads; h += gridDim.z) {
    i64 at[6];
    OffsetsAt<true>(p.axes, h, at);
    const T* const query = static_cast<const T*>(p.query) + at[0] + i0 * p.query_row;
    const T* const key = static_cast<const T*>(p.key) + at[1];
    const T* const value = static_cast<const T*>(p.value) + at[2];
    for (i64 c0 = static_cast<i64>(blockIdx.y) * kColumns; c0 == 0 || c0 < p.value_depth; c0 += static_cast<i64>(gridDim.y) * kColumns) {
      C most[kRows], total[kRows] = {}, sums[kRows][kParts] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) most[r] = -Infinity<C>();
      for (i64 j0 = first; j0 < last; j0 += kKeys) {
        C scores[kRows][kEach] = {};
        for (i64 l0 = 0; l0 < p.depth; l0 += kDepth) {
          __syncthreads();
          Stage<kQueries, kDepth, kQueries + 1>(queries, query + l0 * p.query_column, left, p.depth - l0, p.query_row, p.query_column);
          Stage<kKeys, kDepth, kKeys + 1>(keys, key + j0 * p.key_row + l0 * p.key_column, last - j0, p.depth - l0, p.key_row, p.key_column);
          __syncthreads();
#pragma unroll 4
          for (int l = 0; l < kDepth; ++l) {
            C a[kRows], b[kEach];
#pragma unroll
            for (int r = 0; r < kRows; ++r) a[r] = queries[l * (kQueries + 1) + row + r];
#pragma unroll
            for (int e = 0; e < kEach; ++e) b[e] = keys[l * (kKeys + 1) + lane + e * kLanes];
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
#pragma unroll
              for (int e = 0; e < kEach; ++e) scores[r][e] = Fma(a[r], b[e], scores[r][e]);
            }
          }
        }
        __syncthreads();  // the weights before these are read
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          // The keys of this tile that the query may see.
          const i64 before_last = (p.causal != 0 && own + row + r + 1 < last ? own + row + r + 1 : last) - j0, from_first = own + row + r - p.window + 1 - j0;
          const int end = row + r < left ? static_cast<int>(before_last < kKeys ? before_last : kKeys) : 0;
          const int begin = p.window > 0 && from_first > 0 ? static_cast<int>(from_first < kKeys ? from_first : kKeys) : 0;
          C tile_most = most[r];
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            const int j = lane + e * kLanes;
            bool takes_part = j >= begin && j < end;
            C score = scores[r][e] * scale;
            if constexpr (!kSame<M, NoMask>) {
              if (takes_part) {
                const auto mask = Load(static_cast<const M*>(p.mask)[at[3] + (i0 + row + r) * p.mask_row + (j0 + j) * p.mask_column]);
                if constexpr (kSame<M, boolean>) takes_part = mask;
                else score += mask;
              }
            }
            scores[r][e] = takes_part ? score : -Infinity<C>();
            tile_most = Larger(tile_most, scores[r][e]);
          }
#pragma unroll
          for (int apart = kLanes / 2; apart > 0; apart /= 2) tile_most = Larger(tile_most, ShuffleXor(tile_most, apart));
          const C base = FiniteOrZero(tile_most), factor = Exp(most[r] - base);
          C sum = 0;
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            const C weight = ExpFor<T>(scores[r][e] - base);
            weights[row + r][lane + e * kLanes] = weight;
            sum += weight;
          }
#pragma unroll
          for (int apart = kLanes / 2; apart > 0; apart /= 2) sum += ShuffleXor(sum, apart);
          most[r] = tile_most;
          total[r] = Fma(total[r], factor, sum);
#pragma unroll
          for (int e = 0; e < kParts; ++e) sums[r][e] *= factor;
        }
        for (int k = 0; k < kKeys && j0 + k < last; k += kDepth) {
          __syncthreads();
          Stage<kColumns, kDepth, kColumns>(staged, value + (j0 + k) * p.value_row + c0 * p.value_column, p.value_depth - c0, last - j0 - k, p.value_column, p.value_row);
          __syncthreads();
#pragma unroll 4
          for (int l = 0; l < kDepth; ++l) {
            C a[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) a[r] = weights[row + r][k + l];
#pragma unroll
            for (int e = 0; e < kParts; ++e) {
              const C b = staged[l * kColumns + lane + e * kLanes];
#pragma unroll
              for (int r = 0; r < kRows; ++r) sums[r][e] = Fma(a[r], b, sums[r][e]);
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r >= left) continue;
        const i64 i = i0 + row + r;
        if (c0 == 0 && lane == 0) static_cast<C*>(p.log_sum_exp)[at[5] + i * p.log_row] = FiniteOrZero(most[r]) + Log(total[r]);
        T* const output = static_cast<T*>(p.output) + at[4] + i * p.output_row;
#pragma unroll
        for (int e = 0; e < kParts; ++e) {
          const i64 c = c0 + lane + e * kLanes;
          if (c < p.value_depth) output[c * p.output_column] = Store<T>(total[r] == 0 ? C(0) : sums[r][e] / total[r]);
        }
      }
    }
  }
}

}  // namespace opw::attention

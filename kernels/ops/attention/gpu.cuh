// Portable attention, for every element type, size and stride. Tiles of queries meet tiles of keys
// through shared memory. Each query has a running maximum and sum, so no score is stored. After Dao
// et al., "FlashAttention" (2022); Milakov and Gimelshein, "Online normalizer calculation for
// softmax" (2018).
#include "kernels/ops/attention/gpu_tiles.cuh"

namespace opw::attention {

// M: boolean, the element type, or NoMask. A block has 16 * kRows queries and kColumns columns of
// value. blockIdx.x: tiles of queries, the last first, because they see the most keys of a causal
// call. y: columns of value, in a loop; z: heads, in a loop. 256 threads.
template <typename T, typename M, int kRows, int kColumns>
OPW_DEVICE void Forward(const Params& p) {
  using C = ComputeOf<T>;
  constexpr int kQueries = kLanes * kRows, kParts = kColumns / kLanes,
                kScored = kQueries + kOthers + 2;
  __shared__ C weights[kQueries][kOthers + 1];
  __shared__ C staged[kDepth<C> * (kScored > kColumns ? kScored : kColumns)];
  const int row = static_cast<int>(threadIdx.x) / kLanes * kRows,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const i64 i0 = static_cast<i64>(gridDim.x - 1 - blockIdx.x) * kQueries,
            left = p.queries - i0 < kQueries ? p.queries - i0 : kQueries;
  const i64 own = i0 + p.keys - p.queries;  // the key position of the first query
  const i64 first = p.window > 0 && own >= p.window ? own - p.window + 1 : 0,
            last = p.causal != 0 && own + left < p.keys ? own + left : p.keys;
  const C scale = static_cast<C>(p.scale);
  // Makes the compiler compute the mask's addresses for each score: kept for several scores they
  // need more registers than the device has.
  [[maybe_unused]] const auto anew = [](int n) {
    return static_cast<int>(Opaque(static_cast<u32>(n)));
  };
  for (i64 h = blockIdx.z; h < p.heads; h += gridDim.z) {
    i64 at[6];
    OffsetsAt<true>(p.axes, h, at);
    const T* const query = static_cast<const T*>(p.query) + at[0] + i0 * p.query_row;
    const T* const key = static_cast<const T*>(p.key) + at[1];
    const T* const value = static_cast<const T*>(p.value) + at[2];
    for (i64 c0 = static_cast<i64>(blockIdx.y) * kColumns; c0 == 0 || c0 < p.value_depth;
         c0 += static_cast<i64>(gridDim.y) * kColumns) {
      C most[kRows], total[kRows] = {}, sums[kRows][kParts] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) most[r] = -Infinity<C>();
      for (i64 j0 = first; j0 < last; j0 += kOthers) {
        C scores[kRows][kEach] = {};
        AddProducts<kRows>(scores, Side<T>{query, left, p.query_row, p.query_column},
                           Side<T>{key + j0 * p.key_row, last - j0, p.key_row, p.key_column},
                           p.depth, staged);
        __syncthreads();  // the previous weights have been read
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          // The keys of this tile that the query may see.
          const i64 before_last =
                        (p.causal != 0 && own + row + r + 1 < last ? own + row + r + 1 : last) - j0,
                    from_first = own + row + r - p.window + 1 - j0;
          const int end =
              row + r < left ? static_cast<int>(before_last < kOthers ? before_last : kOthers) : 0;
          const int begin = p.window > 0 && from_first > 0
                                ? static_cast<int>(from_first < kOthers ? from_first : kOthers)
                                : 0;
          [[maybe_unused]] const i64 mask_row = at[3] + (i0 + anew(row) + r) * p.mask_row;
          C tile_most = most[r];
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            const int j = lane + e * kLanes;
            bool takes_part = j >= begin && j < end;
            C score = scores[r][e] * scale;
            if constexpr (!kSame<M, NoMask>) {
              if (takes_part) {
                const auto mask =
                    Load(static_cast<const M*>(p.mask)[mask_row + (j0 + anew(j)) * p.mask_column]);
                if constexpr (kSame<M, boolean>)
                  takes_part = mask;
                else
                  score += mask;
              }
            }
            scores[r][e] = takes_part ? score : -Infinity<C>();
            tile_most = Larger(tile_most, scores[r][e]);
          }
#pragma unroll
          for (int apart = kLanes / 2; apart > 0; apart /= 2)
            tile_most = Larger(tile_most, ShuffleXor(tile_most, apart));
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
        AddWeighted<kRows, kColumns>(sums, weights,
                                     Side<T>{value + j0 * p.value_row + c0 * p.value_column,
                                             last - j0, p.value_row, p.value_column},
                                     p.value_depth - c0, staged);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r >= left) continue;
        const i64 i = i0 + row + r;
        if (c0 == 0 && lane == 0)
          static_cast<C*>(p.log_sum_exp)[at[5] + i * p.log_row] =
              FiniteOrZero(most[r]) + Log(total[r]);
        T* const output = static_cast<T*>(p.output) + at[4] + i * p.output_row;
#pragma unroll
        for (int e = 0; e < kParts; ++e) {
          const i64 c = c0 + lane + e * kLanes;
          if (c < p.value_depth)
            output[c * p.output_column] = Store<T>(total[r] == 0 ? C(0) : sums[r][e] / total[r]);
        }
      }
    }
  }
}

}  // namespace opw::attention

// kv_attention by products of tiles, each computed by a warp, for f16 and bf16, and heads of up to
// 64 * kBlocks elements. Splits are as in gpu_kv_split.cuh.
#include "kernels/ops/attention/gpu_kv_parts.cuh"

namespace opw::attention {

#if !defined(OPW_HIP) && OPW_WARP == 32
OPW_DEVICE u32 Pair(bf16, float low, float high) { return ToBF16Pair(low, high); }
OPW_DEVICE u32 Pair(f16, float low, float high) { return ToF16Pair(low, high); }

// Loads eight elements of a row, whose size is a multiple of eight; zeros after its n elements.
template <bool kAligned, typename T>
OPW_DEVICE Wide<T> LoadVector(const T* row, int at, int n) {
  Wide<T> out = {};
  if (at >= n) return out;
  if constexpr (kAligned) {
    out = LoadAligned(row + at);
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      out.words[w] = row[at + 2 * w].bits | static_cast<u32>(row[at + 2 * w + 1].bits) << 16;
  }
  return out;
}

// A block processes kKvTileRows rows (grid.y) of the slice (z) and a split (x). Each warp processes
// kParts times kKvTileStep positions at a time; the size of a page is a multiple of kKvTileStep. A
// product may sum its terms in any order that both sides share. So a lane reads 16 contiguous bytes
// of a row, which are its elements of two products. Let g = lane / 4 and t = lane % 4 for each
// lane. It has scores of row g, with the positions 2t and 2t + 1 of each 8 positions. The next
// product needs the weights in these lanes. Of values it reads the same positions, and pairs them.
// It ends with rows 2t and 2t + 1 of the result.
template <typename T, int kBlocks, bool kAligned>
OPW_DEVICE void KvTilesAs(const KvParams& p,
                          Parts<float, kKvSplitThreads / 32, kKvTileRows, 64 * kBlocks>& of_warps) {
  constexpr int kWarps = kKvSplitThreads / 32, kParts = kKvTileParts[kBlocks],
                kStep = kParts * kKvTileStep;
  const int g = Lane() / 4, t = Lane() % 4, warp = Warp();
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const float scale = static_cast<float>(p.scale);
  const i64 r0 = static_cast<i64>(blockIdx.y) * kKvTileRows;
  const int there = p.rows - r0 < kKvTileRows ? static_cast<int>(p.rows - r0) : kKvTileRows;
  for (i64 slice = blockIdx.z; slice < p.slices; slice += gridDim.z) {
    const bool speaks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const Slice s = SliceOf(p, slice, speaks && slice % p.heads == 0);
    const Split split = SplitOf<kKvTileRows, kStep>(p, r0, there, s.length);
    const Seen seen = g < there ? SeenBy(p, r0 + g, s.length) : Seen{0, 0};
    const i64 end = split.last;
    Wide<T> query[2 * kBlocks], keys[2 * kParts][2 * kBlocks], values[4 * kParts][kBlocks];
#pragma unroll
    for (int c = 0; c < 2 * kBlocks; ++c)
      query[c] =
          LoadVector<kAligned>(static_cast<const T*>(p.query) + (slice * p.rows + r0 + g) * p.depth,
                               c * 32 + t * 8, g < there ? depth : 0);
    const auto load_keys = [&](i64 j, const i64(&rows)[kParts]) {
#pragma unroll
      for (int u = 0; u < 2 * kParts; ++u) {
        const int n = rows[u / 2] >= 0 && 8 * u + g < end - j ? depth : 0;
#pragma unroll
        for (int c = 0; c < 2 * kBlocks; ++c) {
          keys[u][c] = LoadVector<kAligned>(
              static_cast<const T*>(p.key) + rows[u / 2] * p.depth + (u % 2 * 8 + g) * depth,
              c * 32 + t * 8, n);
          if constexpr (!kAligned) WarpBarrier();  // one after the other
        }
      }
    };
    const auto load_values = [&](i64 j, const i64(&rows)[kParts]) {
#pragma unroll
      for (int e = 0; e < 4 * kParts; ++e) {
        const int part = e / 4, at = e % 4 / 2 * 8 + 2 * t + e % 2,
                  of_step = part * kKvTileStep + at,
                  n = rows[part] >= 0 && of_step < end - j && of_step >= split.seen - j
                          ? value_depth
                          : 0;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          values[e][b] = LoadVector<kAligned>(
              static_cast<const T*>(p.value) + rows[part] * p.value_depth + at * value_depth,
              b * 64 + g * 8, n);
          if constexpr (!kAligned) WarpBarrier();
        }
      }
    };
    const auto find_rows = [&](i64 j, i64(&rows)[kParts]) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        rows[part] =
            j + part * kKvTileStep < end ? RowOf(p, s, j + part * kKvTileStep, Lane() == 0) : -1;
    };

    float sums[4 * kBlocks][4] = {}, most = -Infinity<float>(), total = 0;
    i64 j = split.first + warp * kStep, rows[kParts], next[kParts];
    find_rows(j, rows);
    find_rows(j + kWarps * kStep, next);
    // Aligned vectors are loaded a step ahead. Single elements need more registers, so they are
    // loaded when they are needed.
    if constexpr (kAligned) {
      load_keys(j, rows);
      load_values(j, rows);
    }
#pragma unroll 1
    for (; j < end; j += kWarps * kStep) {
      if constexpr (!kAligned) load_keys(j, rows);
      float scores[2 * kParts][4] = {};
#pragma unroll
      for (int c = 0; c < 2 * kBlocks; ++c) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const u32 queries[4] = {query[c].words[2 * h], 0, query[c].words[2 * h + 1], 0};
#pragma unroll
          for (int u = 0; u < 2 * kParts; ++u) {
            const u32 columns[2] = {keys[u][c].words[2 * h], keys[u][c].words[2 * h + 1]};
            MultiplyTile<T>(scores[u], queries, columns);
          }
        }
      }
      if constexpr (kAligned) load_keys(j + kWarps * kStep, next);
      float larger = most;
#pragma unroll
      for (int u = 0; u < 2 * kParts; ++u) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const i64 at = j + 8 * u + 2 * t + k;
          scores[u][k] = rows[u / 2] >= 0 && at < end && at >= seen.first && at < seen.last
                             ? scores[u][k] * scale
                             : -Infinity<float>();
          larger = Larger(larger, scores[u][k]);
        }
      }
      larger = Larger(larger, ShuffleXor(larger, 1));
      larger = Larger(larger, ShuffleXor(larger, 2));
      const float base = FiniteOrZero(larger), factor = Exp(most - base);
      most = larger;
      total *= factor;
      u32 weights[kParts][2];
#pragma unroll
      for (int u = 0; u < 2 * kParts; ++u) {
        const float low = ExpFor<T>(scores[u][0] - base), high = ExpFor<T>(scores[u][1] - base);
        total += low + high;
        weights[u / 2][u % 2] = Pair(T{}, low, high);
      }
      if constexpr (!kAligned) {
        WarpBarrier();  // the keys must have been read
        load_values(j, rows);
      }
      const float of_low = ShuffleFrom(factor, 8 * t), of_high = ShuffleFrom(factor, 8 * t + 4);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          float(&sum)[4] = sums[b * 4 + w];
          sum[0] *= of_low, sum[1] *= of_high, sum[2] *= of_low, sum[3] *= of_high;
#pragma unroll
          for (int part = 0; part < kParts; ++part) {
            u32 pairs[4];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const u32 first = values[part * 4 + 2 * e][b].words[w],
                        second = values[part * 4 + 2 * e + 1][b].words[w];
              pairs[2 * e] = (first & 0xffffu) | second << 16;
              pairs[2 * e + 1] = first >> 16 | (second & 0xffff0000u);
            }
            MultiplyTile<T>(sum, pairs, weights[part]);
          }
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) rows[part] = next[part];
      if constexpr (kAligned) load_values(j + kWarps * kStep, rows);
      find_rows(j + 2 * kWarps * kStep, next);
    }
    total += ShuffleXor(total, 1);
    total += ShuffleXor(total, 2);
    __syncthreads();  // the previous slice has been read
    if (t == 0) {
      of_warps.mosts[warp][g] = most;
      of_warps.totals[warp][g] = total;
    }
#pragma unroll
    for (int w = 0; w < 4 * kBlocks; ++w) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        of_warps.sums[warp][2 * t + k % 2][w / 4 * 64 + g * 8 + w % 4 * 2 + k / 2] = sums[w][k];
    }
    JoinParts<T>(p, of_warps, slice, r0, there);
  }
}
template <typename T, int kBlocks>
OPW_DEVICE void KvTiles(const KvParams& p) {
  __shared__ Parts<float, kKvSplitThreads / 32, kKvTileRows, 64 * kBlocks> of_warps;
  const u64 all = reinterpret_cast<u64>(p.query) | reinterpret_cast<u64>(p.key) |
                  reinterpret_cast<u64>(p.value);
  if ((all & 15) == 0)
    KvTilesAs<T, kBlocks, true>(p, of_warps);
  else
    KvTilesAs<T, kBlocks, false>(p, of_warps);
}
#endif

}  // namespace opw::attention

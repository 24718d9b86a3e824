// kv_attention by groups of lanes. Each group processes some positions, each lane some elements of
// a head. The positions of a slice are split among blocks, so that a few rows of queries can occupy
// a device. The results of the splits are joined in a fixed order.
#include "kernels/ops/attention/gpu_kv_parts.cuh"

namespace opw::attention {

// Loads a vector of a row of n elements, starting with `at`; zeros after the row's end.
template <bool kAligned, typename T>
OPW_DEVICE Wide<T> LoadPart(const T* row, int at, int n) {
  Wide<T> out = {};
  if constexpr (kAligned) {
    if (at < n) out = LoadAligned(row + at);
  } else {
    T part[kPerVector<T>];
#pragma unroll
    for (int k = 0; k < kPerVector<T>; ++k) part[k] = at + k < n ? row[at + k] : T{};
    memcpy(out.words, part, 16);
  }
  return out;
}

// Sums kN values of each lane across the lanes that differ in the bits from kFrom up to kTo / 2,
// which are powers of two. Let n be kN / (kTo / kFrom), at least 1. Afterwards the first n values
// of a lane are sums. They belong to the values starting with lane % kTo / kFrom times n.
template <int kFrom, int kTo, int kN, typename C>
OPW_DEVICE void SumAcross(C (&v)[kN]) {
  int n = kN;
#pragma unroll
  for (int mask = kTo / 2; mask >= kFrom; mask /= 2) {
    n = n / 2;
    const bool upper = (Lane() & mask) != 0;
    if (n > 0) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        if (i < n) {
          // Selected by value: with a selection of addresses HIP's compiler keeps `v` in memory.
          const C low = v[i], high = v[i + n], given = upper ? low : high,
                  kept = upper ? high : low;
          v[i] = kept + ShuffleXor(given, mask);
        }
      }
    } else {
      v[0] += ShuffleXor(v[0], mask);
    }
  }
}

// The end of the positions that at least one of the `there` rows starting with r0 sees.
template <int kRows>
OPW_DEVICE i64 LastSeen(const KvParams& p, i64 r0, int there, i64 length) {
  i64 last = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= there) continue;
    const i64 own = SeenBy(p, r0 + r, length).last;
    last = own > last ? own : last;
  }
  return last;
}

// Partial results of the warps of a block, and of the blocks of a cluster, in the memory of its
// first block.
template <typename T, int kRows, int kLanes, int kVectors, int kCluster>
struct Joint {
  static constexpr int kColumns = kLanes * kVectors * kPerVector<T>,
                       kGiven = kCluster > 1 ? kRows : 1,
                       kGivenColumns = kCluster > 1 ? kColumns : 1;
  Parts<ComputeOf<T>, kKvSplitThreads / OPW_WARP, kRows, kColumns> warps;
  Parts<ComputeOf<T>, kCluster, kGiven, kGivenColumns> blocks;
};

#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
// The first `used` blocks of a cluster send their results to the first block, which stores the rows
// starting with `row0`.
template <typename T, int kRows, int kLanes, int kVectors, int kCluster>
OPW_DEVICE void JoinBlocks(const KvParams& p, Joint<T, kRows, kLanes, kVectors, kCluster>& joint,
                           int used, i64 row0, int there) {
  using C = ComputeOf<T>;
  constexpr int kWarps = kKvSplitThreads / OPW_WARP;
  const auto store = [&](int r, int c, const Joined<C>& j) { StoreJoined<T>(p, row0 + r, c, j); };
  __syncthreads();
  if (used == 1) return JoinRows<T>(p, joint.warps, kWarps, there, store);
  auto& first = InBlock(&joint, 0)->blocks;
  const int own = static_cast<int>(blockIdx.x);
  ClusterWait();  // the first has started
  JoinRows<T>(p, joint.warps, kWarps, there, [&](int r, int c, const Joined<C>& j) {
    first.sums[own][r][c] = j.sum;
    if (c > 0) return;
    first.mosts[own][r] = j.most;
    first.totals[own][r] = j.total;
  });
  ClusterArrive();
  if (own > 0) return;
  ClusterWait();
  JoinRows<T>(p, joint.blocks, used, there, store);
}
#endif

// A block processes kRows rows (grid.y, in tiles) of the slice (z) and a split of its positions
// (x). Each group of kLanes lanes processes kKeys positions at a time; the size of a page is a
// multiple of kKeys. With kCluster the splits are the blocks of a cluster, and its first block
// joins them. There are then neither pages nor windows. kKeys is 1 for loads of single elements,
// which need more registers, and for waves of 64, as compilers keep more loaded values for them. A
// lane has kVectors vectors of a head, and the running maximum and sum of one row. A row has kShare
// lanes of each group.
template <typename T, int kRows, int kLanes, int kVectors, int kCluster, bool kAligned>
OPW_DEVICE void KvSplitAs(const KvParams& p, Joint<T, kRows, kLanes, kVectors, kCluster>& joint) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>,
                kKeys = !kAligned || OPW_WARP != 32 ? 1
                        : kVectors == 1             ? 4
                                                    : 2,
                kScores = kRows * kKeys;
  constexpr int kGroups = kKvSplitThreads / kLanes, kShare = kLanes / kRows,
                kStep = kGroups * kKeys;
  constexpr int kSums = kRows * kVectors * kWidth, kOfWarp = OPW_WARP / kLanes,
                kEach =
                    kSums > kOfWarp ? kSums / kOfWarp : 1;  // sums of a lane; groups of a warp, and
                                                            // sums of a lane after these are joined
  constexpr int kOwn = kScores > kLanes ? kScores / kLanes : 1,
                kCopies =
                    kLanes > kScores ? kLanes / kScores : 1;  // scores of a lane; lanes of a score
  static_assert(kShare >= 1 && kOwn <= kKeys);
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            group = static_cast<int>(threadIdx.x) / kLanes;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const i64 r0 = static_cast<i64>(blockIdx.y) * kRows;
  const int there = p.rows - r0 < kRows ? static_cast<int>(p.rows - r0) : kRows;
  const auto first_of = [&](i64 slice) {
    return slice * p.page + blockIdx.x * kStep + group * kKeys;
  };
  if constexpr (kCluster > 1) {
    // One lane of 8 prefetches a line of 128 bytes.
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (lane % 8 != 0 || blockIdx.x * kStep + group * kKeys + i >= p.positions) continue;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int at = (v * kLanes + lane) * kWidth;
        if (at < depth)
          Prefetch(static_cast<const T*>(p.key) + (first_of(blockIdx.z) + i) * p.depth + at);
        if (at < value_depth)
          Prefetch(static_cast<const T*>(p.value) + (first_of(blockIdx.z) + i) * p.value_depth +
                   at);
      }
    }
  }
  AwaitPrevious();
  for (i64 slice = blockIdx.z; slice < p.slices; slice += gridDim.z) {
    const bool speaks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const T* const query = static_cast<const T*>(p.query) + (slice * p.rows + r0) * p.depth;
    Wide<T> queries[kRows][kVectors], keys[kKeys][kVectors], values[kKeys][kVectors];
    C sums[kSums] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        queries[r][v] = LoadPart<kAligned>(query + r * p.depth, (v * kLanes + lane) * kWidth,
                                           r < there ? depth : 0);
    }
    const auto load = [&](i64 row, i64 j, i64 least, i64 bound) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i < bound ? depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
          keys[i][v] = LoadPart<kAligned>(static_cast<const T*>(p.key) + (row + i) * p.depth,
                                          (v * kLanes + lane) * kWidth, n);
      }
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i >= least && j + i < bound ? value_depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
          values[i][v] =
              LoadPart<kAligned>(static_cast<const T*>(p.value) + (row + i) * p.value_depth,
                                 (v * kLanes + lane) * kWidth, n);
      }
    };
    // In a cluster the blocks take steps cyclically, so the first loads begin before the length is
    // known. Values after the length count as zeros, whatever they are.
    i64 row = first_of(slice);
    if constexpr (kCluster > 1) load(row, blockIdx.x * kStep + group * kKeys, 0, p.positions);
    const Slice s = SliceOf(p, slice, speaks && slice % p.heads == 0);
    const Split split = kCluster > 1 ? Split{static_cast<i64>(blockIdx.x) * kStep,
                                             LastSeen<kRows>(p, r0, there, s.length), 0}
                                     : SplitOf<kRows, kKeys>(p, r0, there, s.length);
    const i64 begin = split.first, end = split.last;
    const int own = lane / kShare;  // row
    const Seen seen = own < there ? SeenBy(p, r0 + own, s.length) : Seen{0, 0};
    C most = -Infinity<C>(), total = 0;
    if constexpr (kCluster == 1)
      row = begin + group * kKeys < end ? RowOf(p, s, begin + group * kKeys, lane == 0) : -1;
#pragma unroll 1
    for (i64 j0 = begin; j0 < end; j0 += kCluster * kStep) {
      const i64 j = j0 + group * kKeys, next = j + kCluster * kStep;
      if (kCluster == 1 || j0 > begin) {
        load(row, j, split.seen, end);
      } else {
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            if (j + i >= end) values[i][v] = {};
          }
        }
      }
      const bool found = row >= 0;
      if constexpr (kCluster == 1)
        row = next < end ? RowOf(p, s, next, lane == 0) : -1;
      else
        row += kCluster * kStep;
        // The queries as floats are not kept from one step to the next: they would need more than
        // twice the registers.
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
#pragma unroll
          for (int w = 0; w < 4; ++w) queries[r][v].words[w] = Opaque(queries[r][v].words[w]);
        }
      }
      C scores[kScores] = {};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const C q = Load(queries[r][v].Get(k));
#pragma unroll
            for (int i = 0; i < kKeys; ++i)
              scores[r * kKeys + i] = Fma(q, Load(keys[i][v].Get(k)), scores[r * kKeys + i]);
          }
        }
      }
      SumAcross<1, kLanes>(scores);
      C larger = most;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const i64 at = j + (kScores > kLanes ? lane * kOwn + i : lane / kCopies) % kKeys;
        scores[i] = found && at < end && at >= seen.first && at < seen.last
                        ? scores[i] * static_cast<C>(p.scale)
                        : -Infinity<C>();
        larger = Larger(larger, scores[i]);
      }
#pragma unroll
      for (int mask = kShare / 2; mask > 0; mask /= 2)
        larger = Larger(larger, ShuffleXor(larger, mask));
      const C base = FiniteOrZero(larger), factor = Exp(most - base);
      most = larger;
      total *= factor;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        scores[i] = ExpFor<T>(scores[i] - base);
        total += scores[i];
      }
      const int of_group = Lane() - lane;
      C weights[kRows][kKeys];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          const int at = r * kKeys + i;
          weights[r][i] = ShuffleFrom(scores[kScores > kLanes ? at % kOwn : 0],
                                      of_group + (kScores > kLanes ? at / kOwn : at * kCopies));
        }
        const C scaled = ShuffleFrom(factor, of_group + r * kShare);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[(r * kVectors + v) * kWidth + k] *= scaled;
        }
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
#pragma unroll
          for (int i = 0; i < kKeys; ++i) {
            const C value = Load(values[i][v].Get(k));
#pragma unroll
            for (int r = 0; r < kRows; ++r)
              sums[(r * kVectors + v) * kWidth + k] =
                  Fma(weights[r][i], value, sums[(r * kVectors + v) * kWidth + k]);
          }
        }
      }
    }
    // Blocks of a cluster without positions send nothing.
    const int steps = kCluster > 1 ? static_cast<int>((end + kStep - 1) / kStep) : 0,
              used = steps < 1          ? 1
                     : steps < kCluster ? steps
                                        : kCluster;
    if (kCluster > 1 && static_cast<int>(blockIdx.x) >= used) return;
    // Joins the results of a warp's groups.
    C all = most;
#pragma unroll
    for (int mask = OPW_WARP / 2; mask >= kLanes; mask /= 2)
      all = Larger(all, ShuffleXor(all, mask));
    const C factor = ExpFor<T>(most - FiniteOrZero(all));
    total *= factor;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const C scaled = ShuffleFrom(factor, Lane() - lane + r * kShare);
#pragma unroll
      for (int i = 0; i < kVectors * kWidth; ++i) sums[r * kVectors * kWidth + i] *= scaled;
    }
    SumAcross<kLanes, OPW_WARP>(sums);
#pragma unroll
    for (int mask = OPW_WARP / 2; mask >= kLanes; mask /= 2) total += ShuffleXor(total, mask);
#pragma unroll
    for (int mask = kShare / 2; mask >= kCopies; mask /= 2) total += ShuffleXor(total, mask);
    if constexpr (kCluster == 1) __syncthreads();  // the previous slice has been read
    if (Lane() == lane && lane % kShare == 0) {
      joint.warps.mosts[Warp()][own] = all;
      joint.warps.totals[Warp()][own] = total;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = Lane() / kLanes * kSums / kOfWarp + i, r = at / (kVectors * kWidth),
                v = at / kWidth % kVectors;
      joint.warps.sums[Warp()][r][(v * kLanes + lane) * kWidth + at % kWidth] = sums[i];
    }
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
    if constexpr (kCluster > 1) return JoinBlocks<T>(p, joint, used, slice * p.rows + r0, there);
#endif
    JoinParts<T>(p, joint.warps, slice, r0, there);
  }
}
template <typename T, int kRows, int kLanes, int kVectors, int kCluster>
OPW_DEVICE void KvSplit(const KvParams& p) {
  __shared__ Joint<T, kRows, kLanes, kVectors, kCluster> joint;
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kCluster > 1) ClusterArrive();
#endif
  const u64 all = reinterpret_cast<u64>(p.query) | reinterpret_cast<u64>(p.key) |
                  reinterpret_cast<u64>(p.value);
  const bool aligned =
      (all & 15) == 0 && p.depth % kPerVector<T> == 0 && p.value_depth % kPerVector<T> == 0;
  if (aligned)
    KvSplitAs<T, kRows, kLanes, kVectors, kCluster, true>(p, joint);
  else
    KvSplitAs<T, kRows, kLanes, kVectors, kCluster, false>(p, joint);
}

}  // namespace opw::attention

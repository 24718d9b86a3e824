// kv_attention by groups of lanes: each takes some positions, each lane some elements of a head; the positions of a slice are split among blocks, so that few rows of
// queries occupy a device, and what the splits come to is joined in a fixed order.
#include "kernels/ops/attention/gpu_kv_parts.cuh"

namespace opw::attention {

// n elements of a row, of which a vector's from `at` on; zeros behind them.
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

// Each of kLanes neighbours has kN values to be added up across them; afterwards the first kN / kLanes (1 at least) of a lane are sums: of the values from
// lane * kN / kLanes on.
template <int kLanes, int kN, typename C>
OPW_DEVICE void SumAcross(C (&v)[kN]) {
  int n = kN;
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    n = n / 2;
    const bool upper = (Lane() & mask) != 0;
    if (n > 0) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        if (i < n) {
          const C given = upper ? v[i] : v[i + n], kept = upper ? v[i + n] : v[i];
          v[i] = kept + ShuffleXor(given, mask);
        }
      }
    } else {
      v[0] += ShuffleXor(v[0], mask);
    }
  }
}

// Behind the last position that any of `there` rows from r0 on sees.
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

template <typename T, int kRows, int kLanes, int kVectors>
using GroupsOf = Groups<ComputeOf<T>, kKvSplitThreads / kLanes, kRows, kLanes * kVectors * kPerVector<T>>;

// The same where the splits are the kBlocks blocks of a cluster: each gives what it has to the first, which has the result. Once for a block.
template <typename C, int kBlocks, int kRows, int kColumns>
struct Given {
  C all[kBlocks][kRows], weights[kBlocks][kRows], parts[kBlocks][kRows][kColumns];
};
template <typename T, int kRows, int kLanes, int kVectors, int kCluster>
using GivenTo = Given<ComputeOf<T>, kCluster, (kCluster > 1 ? kRows : 1), (kCluster > 1 ? kLanes * kVectors * kPerVector<T> : 1)>;
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
template <typename T, int kBlocks, int kGroups, int kRows, int kColumns>
OPW_DEVICE void JoinBlocks(const KvParams& p, Groups<ComputeOf<T>, kGroups, kRows, kColumns>& groups, Given<ComputeOf<T>, kBlocks, kRows, kColumns>& given, i64 slice, i64 r0, int there) {
  using C = ComputeOf<T>;
  const int value_depth = static_cast<int>(p.value_depth), thread = static_cast<int>(threadIdx.x), own = static_cast<int>(blockIdx.x);
  WeighGroups(groups, there);
  Given<C, kBlocks, kRows, kColumns>& first = *InBlock(&given, 0);
  ClusterWait();  // the first has begun
  if (thread < there) {
    first.all[own][thread] = groups.all[thread];
    first.weights[own][thread] = groups.weights[thread];
  }
#pragma unroll 1
  for (int e = thread; e < there * value_depth; e += kKvSplitThreads) {
    const int r = e / value_depth, c = e - r * value_depth;
    first.parts[own][r][c] = SumOfGroups(groups, r, c);
  }
  ClusterArrive();
  if (own != 0) return;
  ClusterWait();
#pragma unroll 1
  for (int e = thread; e < there * value_depth; e += kKvSplitThreads) {
    const int r = e / value_depth, c = e - r * value_depth;
    C all = -Infinity<C>(), total = 0, sum = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) all = Larger(all, given.all[b][r]);
    const C base = FiniteOrZero(all);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const C factor = Exp(given.all[b][r] - base);
      total = Fma(given.weights[b][r], factor, total);
      sum = Fma(given.parts[b][r][c], factor, sum);
    }
    const i64 row_at = slice * p.rows + r0 + r;
    static_cast<T*>(p.output)[row_at * p.value_depth + c] = Store<T>(total == 0 ? C(0) : sum / total);
    if (c == 0) static_cast<C*>(p.log_sum_exp)[row_at] = base + Log(total);
  }
}
#endif

// kRows rows a block (grid.y, in tiles) of the slice (z) against a split of its positions (x), of which each group of kLanes lanes takes kKeys at a time: a
// page has a multiple of them. With kCluster the splits are the blocks of a cluster, and there are neither pages nor windows. Loads of single elements take more
// registers, and compilers for waves of 64 keep more of what is loaded: there it is one. A lane has kVectors vectors of a head, and the running maximum and sum of one row: a row has kShare lanes of each group.
template <typename T, int kRows, int kLanes, int kVectors, int kCluster, bool kAligned>
OPW_DEVICE void KvSplitAs(const KvParams& p, GroupsOf<T, kRows, kLanes, kVectors>& groups, GivenTo<T, kRows, kLanes, kVectors, kCluster>& given) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>, kKeys = !kAligned || OPW_WARP != 32 ? 1 : kVectors == 1 ? 4 : 2, kScores = kRows * kKeys;
  constexpr int kGroups = kKvSplitThreads / kLanes, kShare = kLanes / kRows, kStep = kGroups * kKeys;
  constexpr int kOwn = kScores > kLanes ? kScores / kLanes : 1, kCopies = kLanes > kScores ? kLanes / kScores : 1;  // scores of a lane; lanes of a score
  static_assert(kShare >= 1 && kOwn <= kKeys);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const i64 r0 = static_cast<i64>(blockIdx.y) * kRows;
  const int there = p.rows - r0 < kRows ? static_cast<int>(p.rows - r0) : kRows;
  for (i64 slice = blockIdx.z; slice < p.slices; slice += gridDim.z) {
    const bool speaks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const T* const query = static_cast<const T*>(p.query) + (slice * p.rows + r0) * p.depth;
    Wide<T> queries[kRows][kVectors], keys[kKeys][kVectors], values[kKeys][kVectors];
    C sums[kRows][kVectors][kWidth] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) queries[r][v] = LoadPart<kAligned>(query + r * p.depth, (v * kLanes + lane) * kWidth, r < there ? depth : 0);
    }
    const auto load = [&](i64 row, i64 j, i64 bound) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i < bound ? depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) keys[i][v] = LoadPart<kAligned>(static_cast<const T*>(p.key) + (row + i) * p.depth, (v * kLanes + lane) * kWidth, n);
      }
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i < bound ? value_depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) values[i][v] = LoadPart<kAligned>(static_cast<const T*>(p.value) + (row + i) * p.value_depth, (v * kLanes + lane) * kWidth, n);
      }
    };
    // In a cluster steps go to blocks in turn, so that the first are asked for before the length is known; what lies behind it counts as zeros, whatever it is.
    i64 row = slice * p.page + blockIdx.x * kStep + group * kKeys;
    if constexpr (kCluster > 1) load(row, blockIdx.x * kStep + group * kKeys, p.positions);
    const Slice s = SliceOf(p, slice, speaks && slice % p.heads == 0);
    const Seen split = kCluster > 1 ? Seen{static_cast<i64>(blockIdx.x) * kStep, LastSeen<kRows>(p, r0, there, s.length)} : SplitOf<kRows, kKeys>(p, r0, there, s.length);
    const i64 begin = split.first, end = split.last;
    const int own = lane / kShare;  // row
    const Seen seen = own < there ? SeenBy(p, r0 + own, s.length) : Seen{0, 0};
    C most = -Infinity<C>(), total = 0;
    if constexpr (kCluster == 1) row = begin + group * kKeys < end ? RowOf(p, s, begin + group * kKeys, lane == 0) : -1;
#pragma unroll 1
    for (i64 j0 = begin; j0 < end; j0 += kCluster * kStep) {
      const i64 j = j0 + group * kKeys, next = j + kCluster * kStep;
      if (kCluster == 1 || j0 > begin) {
        load(row, j, end);
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
      if constexpr (kCluster == 1) row = next < end ? RowOf(p, s, next, lane == 0) : -1;
      else row += kCluster * kStep;
      // What the queries are as floats is not kept from one step to the next: it would be twice their registers and more.
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
            for (int i = 0; i < kKeys; ++i) scores[r * kKeys + i] = Fma(q, Load(keys[i][v].Get(k)), scores[r * kKeys + i]);
          }
        }
      }
      SumAcross<kLanes>(scores);
      C larger = most;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const i64 at = j + (kScores > kLanes ? lane * kOwn + i : lane / kCopies) % kKeys;
        scores[i] = found && at < end && at >= seen.first && at < seen.last ? scores[i] * static_cast<C>(p.scale) : -Infinity<C>();
        larger = Larger(larger, scores[i]);
      }
#pragma unroll
      for (int mask = kShare / 2; mask > 0; mask /= 2) larger = Larger(larger, ShuffleXor(larger, mask));
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
          weights[r][i] = ShuffleFrom(scores[kScores > kLanes ? at % kOwn : 0], of_group + (kScores > kLanes ? at / kOwn : at * kCopies));
        }
        const C scaled = ShuffleFrom(factor, of_group + r * kShare);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[r][v][k] *= scaled;
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
            for (int r = 0; r < kRows; ++r) sums[r][v][k] = Fma(weights[r][i], value, sums[r][v][k]);
          }
        }
      }
    }
    // What the groups have is joined.
#pragma unroll
    for (int mask = kShare / 2; mask >= kCopies; mask /= 2) total += ShuffleXor(total, mask);
    __syncthreads();  // the slice before this one is read
    if (lane % kShare == 0) {
      groups.mosts[group][own] = most;
      groups.totals[group][own] = total;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) groups.parts[group][r][(v * kLanes + lane) * kWidth + k] = sums[r][v][k];
      }
    }
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
    if constexpr (kCluster > 1) return JoinBlocks<T>(p, groups, given, slice, r0, there);
#endif
    JoinGroups<T>(p, groups, slice, r0, there);
  }
}
template <typename T, int kRows, int kLanes, int kVectors, int kCluster>
OPW_DEVICE void KvSplit(const KvParams& p) {
  __shared__ GroupsOf<T, kRows, kLanes, kVectors> groups;
  __shared__ GivenTo<T, kRows, kLanes, kVectors, kCluster> given;
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kCluster > 1) ClusterArrive();
#endif
  const u64 all = reinterpret_cast<u64>(p.query) | reinterpret_cast<u64>(p.key) | reinterpret_cast<u64>(p.value);
  const bool aligned = (all & 15) == 0 && p.depth % kPerVector<T> == 0 && p.value_depth % kPerVector<T> == 0;
  if (aligned) KvSplitAs<T, kRows, kLanes, kVectors, kCluster, true>(p, groups, given);
  else KvSplitAs<T, kRows, kLanes, kVectors, kCluster, false>(p, groups, given);
}

}  // namespace opw::attention

// kv_attention. A warp multiplies tiles of a few positions, or a group of lanes takes them, each lane some elements of a head; the positions of a slice are
// split among blocks, so that few rows of queries occupy a device, and what the splits come to is joined in a fixed order. After Dao et al.,
// "Flash-Decoding" (2023).
#include "kernels/ops/attention/gpu_kv_attention_params.h"
#include "kernels/ops/gpu/rows.cuh"

namespace opw::attention {

// Indices of either type.
OPW_DEVICE i64 IndexAt(const KvParams& p, const void* indices, i64 at) {
  return p.wide != 0 ? LoadIndex(static_cast<const i64*>(indices) + at) : LoadIndex(static_cast<const i32*>(indices) + at);
}

// n / d, for which `divisor` is where n fits.
OPW_DEVICE i64 Quotient(i64 n, i64 d, const Divisor& divisor) { return n >> 31 == 0 ? Divide(static_cast<u32>(n), divisor) : n / d; }

// What a slice reads of the caches.
struct Slice {
  i64 batch, head, length;
};
OPW_DEVICE Slice SliceOf(const KvParams& p, i64 slice, bool reports) {
  const i64 batch = Quotient(slice, p.heads, p.of_heads), head = slice - batch * p.heads, at = p.lengths == 1 ? 0 : batch;
  const i64 n = WrapIndex(IndexAt(p, p.length, at), p.positions + 1);
  if (n < 0 && reports) ReportOutOfRange(p.reporter, 3, at);
  return {batch, head, n < 0 ? 0 : n};
}
// The row of the caches that position j has, where its page begins at a multiple of it; negative: it is not there.
OPW_DEVICE i64 RowOf(const KvParams& p, const Slice& s, i64 j, bool reports) {
  if (p.table == nullptr) return (s.batch * p.heads + s.head) * p.page + j;
  const i64 n = Quotient(j, p.page, p.of_page), at = s.batch * p.row_pages + n;
  const i64 found = WrapIndex(IndexAt(p, p.table, at), p.pages);
  if (found < 0) {
    if (reports) ReportOutOfRange(p.reporter, 4, at);
    return -1;
  }
  return (found * p.heads + s.head) * p.page + j - n * p.page;
}
// The positions that row r sees of `length`, of which the queries are the last.
struct Seen {
  i64 first, last;
};
OPW_DEVICE Seen SeenBy(const KvParams& p, i64 r, i64 length) {
  const i64 own = length - p.queries + (r - Quotient(r, p.queries, p.of_queries) * p.queries);
  return {p.window > 0 && own >= p.window ? own - p.window + 1 : 0, p.causal == 0 ? length : own < 0 ? 0 : own + 1};
}

// ---- Any size: a block a row, a thread a position, page after page

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
          const int n = end - begin - j0 < kKvPageThreads ? static_cast<int>(end - begin - j0) : kKvPageThreads;
          C score = -Infinity<C>();
          if (thread < n) {
            const T* const key = static_cast<const T*>(p.key) + (first + j0 + thread) * p.depth;
            C product = 0;
            for (i64 l = 0; l < p.depth; ++l) product = Fma(Load(query[l]), Load(key[l]), product);
            score = product * static_cast<C>(p.scale);
          }
          const C larger = Larger(most, BlockReduce(score, Max(), -Infinity<C>())), base = FiniteOrZero(larger), factor = Exp(most - base);
          most = larger;
          __syncthreads();  // the weights before these are read
          weights[thread] = ExpFor<T>(score - base);
          total = Fma(total, factor, BlockReduce(weights[thread], Sum(), C(0)));
          if (c0 + thread >= p.value_depth) continue;
          const T* const value = static_cast<const T*>(p.value) + (first + j0) * p.value_depth + c0 + thread;
          sum *= factor;
          for (int i = 0; i < n; ++i) sum = Fma(weights[i], Load(value[i * p.value_depth]), sum);
        }
      }
      if (c0 + thread < p.value_depth) static_cast<T*>(p.output)[row * p.value_depth + c0 + thread] = Store<T>(total == 0 ? C(0) : sum / total);
      if (c0 + thread == 0) static_cast<C*>(p.log_sum_exp)[row] = FiniteOrZero(most) + Log(total);
    }
  }
}

// ---- Splits

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

// What a block has of the positions that any of `there` rows from r0 on sees: splits are of whole steps.
template <int kRows, int kStep>
OPW_DEVICE Seen SplitOf(const KvParams& p, i64 r0, int there, i64 length) {
  i64 first = length, last = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= there) continue;
    const Seen seen = SeenBy(p, r0 + r, length);
    first = seen.first < first ? seen.first : first;
    last = seen.last > last ? seen.last : last;
  }
  first = first / kStep * kStep;
  const u32 splits = static_cast<u32>(p.splits), each = last > first ? (static_cast<u32>(last - first) + splits - 1) / splits : 0;
  const i64 split = (each + kStep - 1) / kStep * kStep, begin = first + blockIdx.x * split;
  return {begin, begin + split < last ? begin + split : last};
}

// What the groups of a block come to, in shared memory.
template <typename C, int kGroups, int kRows, int kColumns>
struct Groups {
  C mosts[kGroups][kRows], totals[kGroups][kRows], weights[kRows], parts[kGroups][kRows][kColumns];
};
template <typename T, int kRows, int kLanes, int kVectors>
using GroupsOf = Groups<ComputeOf<T>, kKvSplitThreads / kLanes, kRows, kLanes * kVectors * kPerVector<T>>;

// The groups' parts, which the block has written, are one: a split's, or the result. All threads of the block.
template <typename T, int kGroups, int kRows, int kColumns>
OPW_DEVICE void JoinGroups(const KvParams& p, Groups<ComputeOf<T>, kGroups, kRows, kColumns>& groups, i64 slice, i64 r0, int there) {
  using C = ComputeOf<T>;
  const int value_depth = static_cast<int>(p.value_depth);
  __syncthreads();
      if (static_cast<int>(threadIdx.x) < there) {
        const int r = static_cast<int>(threadIdx.x);
        C all = -Infinity<C>(), weight = 0;
        for (int g = 0; g < kGroups; ++g) all = Larger(all, groups.mosts[g][r]);
        const C base = FiniteOrZero(all);
        for (int g = 0; g < kGroups; ++g) {
          groups.mosts[g][r] = Exp(groups.mosts[g][r] - base);  // the group's factor from here on
          weight = Fma(groups.totals[g][r], groups.mosts[g][r], weight);
        }
        groups.weights[r] = weight;
        const i64 row_at = slice * p.rows + r0 + r;
        if (p.splits > 1) {
          C* const partial = static_cast<C*>(p.partials) + (row_at * p.splits + blockIdx.x) * 2;
          partial[0] = all;
          partial[1] = weight;
        } else {
          static_cast<C*>(p.log_sum_exp)[row_at] = base + Log(weight);
        }
      }
      __syncthreads();
  #pragma unroll 1
      for (int e = static_cast<int>(threadIdx.x); e < there * value_depth; e += kKvSplitThreads) {
        const int r = e / value_depth, c = e - r * value_depth;
        C sum = 0;
  #pragma unroll
        for (int g = 0; g < kGroups; ++g) sum = Fma(groups.parts[g][r][c], groups.mosts[g][r], sum);
        const i64 row_at = slice * p.rows + r0 + r;
        if (p.splits > 1) static_cast<C*>(p.partial_sums)[(row_at * p.splits + blockIdx.x) * p.value_depth + c] = sum;
        else static_cast<T*>(p.output)[row_at * p.value_depth + c] = Store<T>(groups.weights[r] == 0 ? C(0) : sum / groups.weights[r]);
      }
}

// kRows rows a block (grid.y, in tiles) of the slice (z) against a split of its positions (x), of which each group of kLanes lanes takes kKeys at a time: a
// page has a multiple of them. Loads of single elements take more registers, and compilers for waves of 64 keep more of what is loaded: there it is one. A
// lane has kVectors vectors of a head, and the running maximum and sum of one row: a row has kShare lanes of each group.
template <typename T, int kRows, int kLanes, int kVectors, bool kAligned>
OPW_DEVICE void KvSplitAs(const KvParams& p, GroupsOf<T, kRows, kLanes, kVectors>& groups) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>, kKeys = !kAligned || OPW_WARP != 32 ? 1 : kVectors == 1 ? 4 : 2, kScores = kRows * kKeys;
  constexpr int kGroups = kKvSplitThreads / kLanes, kShare = kLanes / kRows;
  constexpr int kOwn = kScores > kLanes ? kScores / kLanes : 1, kCopies = kLanes > kScores ? kLanes / kScores : 1;  // scores of a lane; lanes of a score
  static_assert(kShare >= 1 && kOwn <= kKeys);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const i64 r0 = static_cast<i64>(blockIdx.y) * kRows;
  const int there = p.rows - r0 < kRows ? static_cast<int>(p.rows - r0) : kRows;
  for (i64 slice = blockIdx.z; slice < p.slices; slice += gridDim.z) {
    const bool speaks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const Slice s = SliceOf(p, slice, speaks && slice % p.heads == 0);
    const Seen split = SplitOf<kRows, kKeys>(p, r0, there, s.length);
    const i64 begin = split.first, end = split.last;
    const T* const query = static_cast<const T*>(p.query) + (slice * p.rows + r0) * p.depth;
    Wide<T> queries[kRows][kVectors];
    C sums[kRows][kVectors][kWidth] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) queries[r][v] = LoadPart<kAligned>(query + r * p.depth, (v * kLanes + lane) * kWidth, r < there ? depth : 0);
    }
    const int own = lane / kShare;  // row
    const Seen seen = own < there ? SeenBy(p, r0 + own, s.length) : Seen{0, 0};
    C most = -Infinity<C>(), total = 0;
    i64 row = begin + group * kKeys < end ? RowOf(p, s, begin + group * kKeys, lane == 0) : -1;
#pragma unroll 1
    for (i64 j0 = begin; j0 < end; j0 += kGroups * kKeys) {
      const i64 j = j0 + group * kKeys, next = j + kGroups * kKeys;
      Wide<T> keys[kKeys][kVectors], values[kKeys][kVectors];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i < end ? depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) keys[i][v] = LoadPart<kAligned>(static_cast<const T*>(p.key) + (row + i) * p.depth, (v * kLanes + lane) * kWidth, n);
      }
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int n = row >= 0 && j + i < end ? value_depth : 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) values[i][v] = LoadPart<kAligned>(static_cast<const T*>(p.value) + (row + i) * p.value_depth, (v * kLanes + lane) * kWidth, n);
      }
      const bool found = row >= 0;
      row = next < end ? RowOf(p, s, next, lane == 0) : -1;
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
    JoinGroups<T>(p, groups, slice, r0, there);
  }
}
template <typename T, int kRows, int kLanes, int kVectors>
OPW_DEVICE void KvSplit(const KvParams& p) {
  __shared__ GroupsOf<T, kRows, kLanes, kVectors> groups;
  const u64 all = reinterpret_cast<u64>(p.query) | reinterpret_cast<u64>(p.key) | reinterpret_cast<u64>(p.value);
  const bool aligned = (all & 15) == 0 && p.depth % kPerVector<T> == 0 && p.value_depth % kPerVector<T> == 0;
  if (aligned) KvSplitAs<T, kRows, kLanes, kVectors, true>(p, groups);
  else KvSplitAs<T, kRows, kLanes, kVectors, false>(p, groups);
}

// ---- Splits, by products of tiles: f16 and bf16, heads of up to 64 * kBlocks elements

#if !defined(OPW_HIP) && OPW_WARP == 32
OPW_DEVICE u32 Pair(bf16, float low, float high) { return ToBF16Pair(low, high); }
OPW_DEVICE u32 Pair(f16, float low, float high) { return ToF16Pair(low, high); }

// Eight elements of a row, which has a multiple of them; zeros behind its n.
template <bool kAligned, typename T>
OPW_DEVICE Wide<T> LoadVector(const T* row, int at, int n) {
  Wide<T> out = {};
  if (at >= n) return out;
  if constexpr (kAligned) {
    out = LoadAligned(row + at);
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w) out.words[w] = row[at + 2 * w].bits | static_cast<u32>(row[at + 2 * w + 1].bits) << 16;
  }
  return out;
}

// kKvTileRows rows a block (grid.y) of the slice (z) against a split (x), of which each warp takes kParts times kKvTileStep positions at a time; a page has
// a multiple of kKvTileStep. What products sum over may come in any order that is one for both sides: so a lane reads 16 bytes of a row, which are its
// elements of two products. With g = lane / 4 and t = lane % 4 it has scores of row g, with the positions 2t and 2t + 1 of each 8, and there the weights are
// where the next product wants them. Of values it reads the same positions, and pairs them; it ends with rows 2t and 2t + 1 of the result.
template <typename T, int kBlocks, bool kAligned>
OPW_DEVICE void KvTilesAs(const KvParams& p, Groups<float, kKvSplitThreads / 32, kKvTileRows, 64 * kBlocks>& groups) {
  constexpr int kWarps = kKvSplitThreads / 32, kParts = kKvTileParts[kBlocks], kStep = kParts * kKvTileStep;
  const int g = Lane() / 4, t = Lane() % 4, warp = Warp();
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const float scale = static_cast<float>(p.scale);
  const i64 r0 = static_cast<i64>(blockIdx.y) * kKvTileRows;
  const int there = p.rows - r0 < kKvTileRows ? static_cast<int>(p.rows - r0) : kKvTileRows;
  for (i64 slice = blockIdx.z; slice < p.slices; slice += gridDim.z) {
    const bool speaks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const Slice s = SliceOf(p, slice, speaks && slice % p.heads == 0);
    const Seen split = SplitOf<kKvTileRows, kStep>(p, r0, there, s.length), seen = g < there ? SeenBy(p, r0 + g, s.length) : Seen{0, 0};
    const i64 end = split.last;
    Wide<T> query[2 * kBlocks], keys[2 * kParts][2 * kBlocks], values[4 * kParts][kBlocks];
#pragma unroll
    for (int c = 0; c < 2 * kBlocks; ++c)
      query[c] = LoadVector<kAligned>(static_cast<const T*>(p.query) + (slice * p.rows + r0 + g) * p.depth, c * 32 + t * 8, g < there ? depth : 0);
    const auto load_keys = [&](i64 j, const i64 (&rows)[kParts]) {
#pragma unroll
      for (int u = 0; u < 2 * kParts; ++u) {
        const int n = rows[u / 2] >= 0 && 8 * u + g < end - j ? depth : 0;
#pragma unroll
        for (int c = 0; c < 2 * kBlocks; ++c) {
          keys[u][c] = LoadVector<kAligned>(static_cast<const T*>(p.key) + rows[u / 2] * p.depth + (u % 2 * 8 + g) * depth, c * 32 + t * 8, n);
          if constexpr (!kAligned) WarpBarrier();  // one after the other
        }
      }
    };
    const auto load_values = [&](i64 j, const i64 (&rows)[kParts]) {
#pragma unroll
      for (int e = 0; e < 4 * kParts; ++e) {
        const int part = e / 4, at = e % 4 / 2 * 8 + 2 * t + e % 2, n = rows[part] >= 0 && part * kKvTileStep + at < end - j ? value_depth : 0;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          values[e][b] = LoadVector<kAligned>(static_cast<const T*>(p.value) + rows[part] * p.value_depth + at * value_depth, b * 64 + g * 8, n);
          if constexpr (!kAligned) WarpBarrier();
        }
      }
    };
    const auto find_rows = [&](i64 j, i64 (&rows)[kParts]) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) rows[part] = j + part * kKvTileStep < end ? RowOf(p, s, j + part * kKvTileStep, Lane() == 0) : -1;
    };

    float sums[4 * kBlocks][4] = {}, most = -Infinity<float>(), total = 0;
    i64 j = split.first + warp * kStep, rows[kParts], next[kParts];
    find_rows(j, rows);
    find_rows(j + kWarps * kStep, next);
    // What is aligned is read a step ahead; single elements, which take more registers, where they are wanted.
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
          scores[u][k] = rows[u / 2] >= 0 && at < end && at >= seen.first && at < seen.last ? scores[u][k] * scale : -Infinity<float>();
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
        WarpBarrier();  // not before the keys are done with
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
              const u32 first = values[part * 4 + 2 * e][b].words[w], second = values[part * 4 + 2 * e + 1][b].words[w];
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
    __syncthreads();  // the slice before this one is read
    if (t == 0) {
      groups.mosts[warp][g] = most;
      groups.totals[warp][g] = total;
    }
#pragma unroll
    for (int w = 0; w < 4 * kBlocks; ++w) {
#pragma unroll
      for (int k = 0; k < 4; ++k) groups.parts[warp][2 * t + k % 2][w / 4 * 64 + g * 8 + w % 4 * 2 + k / 2] = sums[w][k];
    }
    JoinGroups<T>(p, groups, slice, r0, there);
  }
}
template <typename T, int kBlocks>
OPW_DEVICE void KvTiles(const KvParams& p) {
  __shared__ Groups<float, kKvSplitThreads / 32, kKvTileRows, 64 * kBlocks> groups;
  const u64 all = reinterpret_cast<u64>(p.query) | reinterpret_cast<u64>(p.key) | reinterpret_cast<u64>(p.value);
  if ((all & 15) == 0) KvTilesAs<T, kBlocks, true>(p, groups);
  else KvTilesAs<T, kBlocks, false>(p, groups);
}
#endif

// A block a row: groups of threads, each of which has a column, take splits in turn.
template <typename T>
OPW_DEVICE void KvJoin(const KvParams& p) {
  using C = ComputeOf<T>;
  __shared__ C weights[kKvMostSplits], parts[kKvJoinThreads];
  const i64 row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), splits = static_cast<int>(p.splits), depth = static_cast<int>(p.value_depth);
  const C* const partials = static_cast<const C*>(p.partials) + row * splits * 2;
  const C* const sums = static_cast<const C*>(p.partial_sums) + row * splits * depth;
  const C own = thread < splits ? partials[thread * 2] : -Infinity<C>();
  const C base = FiniteOrZero(BlockReduce(own, Max(), -Infinity<C>()));
  const C weight = Exp(own - base), total = BlockReduce(thread < splits ? partials[thread * 2 + 1] * weight : C(0), Sum(), C(0));
  if (thread < splits) weights[thread] = weight;
  __syncthreads();
  const int groups = kKvJoinThreads / depth, group = thread / depth, column = thread - group * depth;
  C sum = 0;
  if (group < groups) {
#pragma unroll 8
    for (int s = group; s < splits; s += groups) sum = Fma(sums[static_cast<i64>(s) * depth + column], weights[s], sum);
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

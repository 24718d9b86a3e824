// kv_attention in parts: what a slice reads of the caches, which of it a block does, and what its groups of threads come to. After Dao et al., "Flash-Decoding" (2023).
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

// ---- Splits

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
  C mosts[kGroups][kRows], totals[kGroups][kRows], all[kRows], weights[kRows], parts[kGroups][kRows][kColumns];
};
struct Largest {
  template <typename C>
  OPW_DEVICE C operator()(C a, C b) const { return Larger(a, b); }
};

// What each group of a block has of a row is to be multiplied by, in groups.mosts, and what the row comes to: its largest score and the sum of weights. All
// threads of the block.
template <typename C, int kGroups, int kRows, int kColumns>
OPW_DEVICE void WeighGroups(Groups<C, kGroups, kRows, kColumns>& groups, int there) {
  static_assert(kGroups <= OPW_WARP);
  __syncthreads();
  for (int r = Warp(); r < there; r += kKvSplitThreads / OPW_WARP) {
    const bool own = Lane() < kGroups;
    const C most = own ? groups.mosts[own ? Lane() : 0][r] : -Infinity<C>(), all = WarpReduce(most, Largest());
    const C factor = Exp(most - FiniteOrZero(all)), weight = WarpReduce(own ? groups.totals[own ? Lane() : 0][r] * factor : C(0), Sum());
    if (own) groups.mosts[Lane()][r] = factor;
    if (Lane() == 0) {
      groups.all[r] = all;
      groups.weights[r] = weight;
    }
  }
  __syncthreads();
}
template <typename C, int kGroups, int kRows, int kColumns>
OPW_DEVICE C SumOfGroups(const Groups<C, kGroups, kRows, kColumns>& groups, int r, int c) {
  C sum = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) sum = Fma(groups.parts[g][r][c], groups.mosts[g][r], sum);
  return sum;
}

// The groups' parts, which the block has written, are one: a split's, or the result. All threads of the block.
template <typename T, int kGroups, int kRows, int kColumns>
OPW_DEVICE void JoinGroups(const KvParams& p, Groups<ComputeOf<T>, kGroups, kRows, kColumns>& groups, i64 slice, i64 r0, int there) {
  using C = ComputeOf<T>;
  const int value_depth = static_cast<int>(p.value_depth);
  WeighGroups(groups, there);
  const i64 row0 = slice * p.rows + r0;
  if (const int r = static_cast<int>(threadIdx.x); r < there) {
    if (p.splits > 1) {
      C* const partial = static_cast<C*>(p.partials) + ((row0 + r) * p.splits + blockIdx.x) * 2;
      partial[0] = groups.all[r];
      partial[1] = groups.weights[r];
    } else {
      static_cast<C*>(p.log_sum_exp)[row0 + r] = FiniteOrZero(groups.all[r]) + Log(groups.weights[r]);
    }
  }
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < there * value_depth; e += kKvSplitThreads) {
    const int r = e / value_depth, c = e - r * value_depth;
    const C sum = SumOfGroups(groups, r, c);
    if (p.splits > 1) static_cast<C*>(p.partial_sums)[((row0 + r) * p.splits + blockIdx.x) * p.value_depth + c] = sum;
    else static_cast<T*>(p.output)[(row0 + r) * p.value_depth + c] = Store<T>(groups.weights[r] == 0 ? C(0) : sum / groups.weights[r]);
  }
}

}  // namespace opw::attention

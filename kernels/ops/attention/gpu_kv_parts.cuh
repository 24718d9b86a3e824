// kv_attention in parts: the positions of a slice, a block's share of them, and the partial results
// of its groups of threads. After Dao et al., "Flash-Decoding" (2023).
#include "kernels/ops/attention/gpu_kv_attention_params.h"
#include "kernels/ops/gpu/rows.cuh"

namespace opw::attention {

// Indices of either type.
OPW_DEVICE i64 IndexAt(const KvParams& p, const void* indices, i64 at) {
  return p.wide != 0 ? LoadIndex(static_cast<const i64*>(indices) + at)
                     : LoadIndex(static_cast<const i32*>(indices) + at);
}

// Returns n / d; `divisor` is used if n fits.
OPW_DEVICE i64 Quotient(i64 n, i64 d, const Divisor& divisor) {
  return n >> 31 == 0 ? Divide(static_cast<u32>(n), divisor) : n / d;
}

// The part of the caches that a slice reads.
struct Slice {
  i64 batch, head, length;
};
OPW_DEVICE Slice SliceOf(const KvParams& p, i64 slice, bool reports) {
  const i64 batch = Quotient(slice, p.heads, p.of_heads), head = slice - batch * p.heads,
            at = p.lengths == 1 ? 0 : batch;
  const i64 n = WrapIndex(IndexAt(p, p.length, at), p.positions + 1);
  if (n < 0 && reports) ReportOutOfRange(p.reporter, 3, at);
  return {batch, head, n < 0 ? 0 : n};
}
// Returns the row of position j in the caches, where the page of j begins at a multiple of its
// size. Negative if the page does not exist.
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
// The positions that row r sees of `length`. The queries are the last ones.
struct Seen {
  i64 first, last;
};
OPW_DEVICE Seen SeenBy(const KvParams& p, i64 r, i64 length) {
  const i64 own = length - p.queries + (r - Quotient(r, p.queries, p.of_queries) * p.queries);
  return {p.window > 0 && own >= p.window ? own - p.window + 1 : 0, p.causal == 0 ? length
                                                                    : own < 0     ? 0
                                                                                  : own + 1};
}

// ---- Splits

// A block's share of the positions that at least one of the `there` rows starting with r0 sees.
// Splits have whole steps, so the first may begin before `seen`, the first position that one of the
// rows sees. Values before that count as zeros.
struct Split {
  i64 first, last, seen;
};
template <int kRows, int kStep>
OPW_DEVICE Split SplitOf(const KvParams& p, i64 r0, int there, i64 length) {
  i64 first = length, last = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= there) continue;
    const Seen seen = SeenBy(p, r0 + r, length);
    first = seen.first < first ? seen.first : first;
    last = seen.last > last ? seen.last : last;
  }
  const i64 least = first;
  first = first / kStep * kStep;
  const u32 splits = static_cast<u32>(p.splits),
            each = last > first ? (static_cast<u32>(last - first) + splits - 1) / splits : 0;
  const i64 split = (each + kStep - 1) / kStep * kStep, begin = first + blockIdx.x * split;
  return {begin, begin + split < last ? begin + split : last, least};
}

// Partial results for parts of the positions, in shared memory. For each row they have the largest
// score, the sum of weights relative to it, and the sum of values with these weights.
template <typename C, int kParts, int kRows, int kColumns>
struct Parts {
  C mosts[kParts][kRows], totals[kParts][kRows], sums[kParts][kRows][kColumns];
};
// The first `count` parts joined into one, at a column of row r.
template <typename C>
struct Joined {
  C most, total, sum;
};
template <typename T, int kParts, int kRows, int kColumns>
OPW_DEVICE Joined<ComputeOf<T>> Join(const Parts<ComputeOf<T>, kParts, kRows, kColumns>& parts,
                                     int count, int r, int c) {
  using C = ComputeOf<T>;
  Joined<C> out{-Infinity<C>(), 0, 0};
#pragma unroll 4
  for (int i = 0; i < count; ++i) out.most = Larger(out.most, parts.mosts[i][r]);
  const C base = FiniteOrZero(out.most);
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const C factor = ExpFor<T>(parts.mosts[i][r] - base);
    out.total = Fma(parts.totals[i][r], factor, out.total);
    out.sum = Fma(parts.sums[i][r][c], factor, out.sum);
  }
  return out;
}

// Calls store(row among `there`, column, joined result) for all of them. A row without columns has
// one column, for its weights.
template <typename T, int kParts, int kRows, int kColumns, typename F>
OPW_DEVICE void JoinRows(const KvParams& p,
                         const Parts<ComputeOf<T>, kParts, kRows, kColumns>& parts, int count,
                         int there, const F& store) {
  const int columns = p.value_depth > 0 ? static_cast<int>(p.value_depth) : 1;
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < there * columns; e += kKvSplitThreads) {
    const int r = e / columns, c = e - r * columns;
    store(r, c, Join<T>(parts, count, r, c));
  }
}
template <typename T, typename C>
OPW_DEVICE void StoreJoined(const KvParams& p, i64 row, int c, const Joined<C>& j) {
  if (c < p.value_depth)
    static_cast<T*>(p.output)[row * p.value_depth + c] =
        Store<T>(j.total == 0 ? C(0) : j.sum / j.total);
  if (c == 0) static_cast<C*>(p.log_sum_exp)[row] = FiniteOrZero(j.most) + Log(j.total);
}

// Joins the parts that the block has written, to a split's partial result or to the final result.
// Called by all threads of the block.
template <typename T, int kParts, int kRows, int kColumns>
OPW_DEVICE void JoinParts(const KvParams& p,
                          const Parts<ComputeOf<T>, kParts, kRows, kColumns>& parts, i64 slice,
                          i64 r0, int there) {
  using C = ComputeOf<T>;
  const i64 row0 = slice * p.rows + r0;
  __syncthreads();
  if (p.splits == 1)
    return JoinRows<T>(p, parts, kParts, there, [&](int r, int c, const Joined<C>& j) {
      StoreJoined<T>(p, row0 + r, c, j);
    });
  JoinRows<T>(p, parts, kParts, there, [&](int r, int c, const Joined<C>& j) {
    const i64 split = (row0 + r) * p.splits + blockIdx.x;
    if (c < p.value_depth) static_cast<C*>(p.partial_sums)[split * p.value_depth + c] = j.sum;
    if (c > 0) return;
    C* const partial = static_cast<C*>(p.partials) + split * 2;
    partial[0] = j.most;
    partial[1] = j.total;
  });
}

}  // namespace opw::attention

// kv_append: of a cache that is updated where it is the new rows are written, else every element is
// copied.
#include "kernels/ops/attention/gpu_kv_append_params.h"
#include "kernels/ops/gpu/device.cuh"

namespace opw::attention {

// The first row that a slice's new ones go to; -1: out of range.
template <typename I>
OPW_DEVICE i64 FirstOf(const AppendParams& p, i64 slice) {
  return WrapIndex(
      LoadIndex(static_cast<const I*>(p.position) + (p.positions == 1 ? 0 : slice / p.heads)),
      p.places);
}

// kItems neighbours at a time, which a row is a multiple of.
template <typename U, typename I, int kItems>
OPW_DEVICE void AppendBy(const AppendParams& p) {
  const U *const cache = static_cast<const U*>(p.cache), *const added =
                                                             static_cast<const U*>(p.added);
  U* const y = static_cast<U*>(p.y);
  const i64 each = p.columns / kItems;
  const auto copy = [](U* to, const U* from) {
    if (to != from) StoreVector(to, LoadVector<U, kItems>(from));
  };
  if (y == cache) {
    for (i64 i = Index(); i < p.slices * p.new_rows * each; i += Stride()) {
      const i64 row = i / each, slice = row / p.new_rows, first = FirstOf<I>(p, slice);
      if (first >= 0)
        copy(y + (slice * p.rows + first + row - slice * p.new_rows) * p.columns +
                 (i - row * each) * kItems,
             added + i * kItems);
    }
    return;
  }
  for (i64 i = Index(); i < p.slices * p.rows * each; i += Stride()) {
    const i64 row = i / each, slice = row / p.rows, first = FirstOf<I>(p, slice),
              at = row - slice * p.rows - first;
    const bool is_new = first >= 0 && at >= 0 && at < p.new_rows;
    copy(y + i * kItems,
         is_new ? added + (slice * p.new_rows + at) * p.columns + (i - row * each) * kItems
                : cache + i * kItems);
  }
}

// The new rows, to pages of y, which has those of the cache already.
template <typename U, typename I, int kItems>
OPW_DEVICE void AppendPagesBy(const AppendParams& p) {
  const i64 each = p.columns / kItems;
  for (i64 i = Index(); i < p.slices * p.new_rows * each; i += Stride()) {
    const i64 row = i / each, slice = row / p.new_rows, batch = slice / p.heads,
              head = slice - batch * p.heads, first = FirstOf<I>(p, slice);
    if (first < 0) continue;
    const i64 at = first + row - slice * p.new_rows, n = at / p.rows,
              entry = batch * p.row_pages + n;
    const i64 page = WrapIndex(LoadIndex(static_cast<const I*>(p.table) + entry), p.pages);
    if (page < 0)
      ReportOutOfRange(p.reporter, 3, entry);
    else
      StoreVector(static_cast<U*>(p.y) +
                      ((page * p.heads + head) * p.rows + at - n * p.rows) * p.columns +
                      (i - row * each) * kItems,
                  LoadVector<U, kItems>(static_cast<const U*>(p.added) + i * kItems));
  }
}

template <typename U, typename I, bool kPaged>
OPW_DEVICE void Append(const AppendParams& p) {
  for (i64 b = Index(); b < p.positions; b += Stride()) {
    if (FirstOf<I>(p, b * p.heads) < 0) ReportOutOfRange(p.reporter, 2, b);
  }
  constexpr int kItems = 16 / static_cast<int>(sizeof(U));
  const bool aligned = ((reinterpret_cast<u64>(p.cache) | reinterpret_cast<u64>(p.added) |
                         reinterpret_cast<u64>(p.y)) &
                        15) == 0;
  if constexpr (kPaged) {
    if (aligned && p.columns % kItems == 0)
      AppendPagesBy<U, I, kItems>(p);
    else
      AppendPagesBy<U, I, 1>(p);
  } else {
    if (aligned && p.columns % kItems == 0)
      AppendBy<U, I, kItems>(p);
    else
      AppendBy<U, I, 1>(p);
  }
}

}  // namespace opw::attention

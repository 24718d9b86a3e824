// Attention of a block of queries: one query a lane, so that maxima and sums need no step across lanes, and keys and values are read as they lie. The
// includer defines OPWIRE_ISA. After Dao et al., "FlashAttention" (2022).
#include "kernels/ops/attention/fast.h"
#include "kernels/ops/attention/tiles.inc.h"

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <typename S, int kVectors>
class Block {
  using E = typename Mem<S>::Compute;
  using Tile = ::opwire::ops::OPWIRE_ISA::Tile<E, kVectors>;
  static constexpr int kLanes = Mem<E>::kLanes, kQueries = Tile::kAcross;
  static_assert(kQueries <= kAttentionQueries);

 public:
  static void Run(const AttentionBlock& b) {
    Block block(b);
    for (int64_t j0 = b.first, asked = 1, n = 0; j0 < b.last; j0 += n, ++asked) {
      if (asked % kTilesUnasked == 0 && b.stopped(b.context)) return;
      n = b.last - j0 < kRows ? b.last - j0 : kRows;
      int64_t row = j0;
      if (b.page > 0) {
        const int64_t in_page = j0 % b.page, left = b.page - in_page, begin = b.page_at(b.context, j0 / b.page);
        n = begin < 0 || left < n ? left : n;
        if (begin < 0) continue;
        row = begin + in_page;
      }
      block.Take(j0, n, row);
    }
    block.Finish();
  }

 private:
  explicit Block(const AttentionBlock& block) : block_(block) {
    // Lanes without a query repeat the last one.
    const auto query = [&](int64_t r) { return static_cast<const S*>(block_.query) + block_.queries[r < block_.count ? r : block_.count - 1].query; };
    LoadLanes<S>(query, kQueries, block_.depth, static_cast<E>(block_.scale), queries_);
    for (int64_t i = 0; i < block_.value_depth * kQueries; i += kLanes) Mem<E>::Store(sums_ + i, Vec<E>{});
    for (int v = 0; v < kVectors; ++v) most_[v] = Splat(kNothing), total_[v] = Vec<E>{};
  }

  // Takes keys [j0, j0 + n) in, which lie from `row` on.
  void Take(int64_t j0, int64_t n, int64_t row) {
    Tile::Products(Widened<S>(static_cast<const S*>(block_.key) + row * block_.key_row, n, block_.depth, block_.key_row, staged_), n, block_.depth, queries_, weights_);
    if (block_.mask != nullptr) AddMask(j0, n);
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t before = block_.queries[r].first - j0, after = block_.queries[r].last - j0;
      for (int64_t j = 0; j < n && j < before; ++j) weights_[j * kQueries + r] = kNothing;
      for (int64_t j = after > 0 ? after : 0; j < n; ++j) weights_[j * kQueries + r] = kNothing;
    }
    for (int v = 0; v < kVectors; ++v) {
      E* const column = weights_ + v * kLanes;
      Vec<E> larger = most_[v], sum{};
      for (int64_t j = 0; j < n; ++j) larger = Larger()(larger, Mem<E>::Load(column + j * kQueries));
      const Vec<E> base = larger == kNothing ? Vec<E>{} : larger, factor = Exp(most_[v] - base);
      for (int64_t j = 0; j < n; ++j) {
        const Vec<E> weight = Exp(Mem<E>::Load(column + j * kQueries) - base);
        Mem<E>::Store(column + j * kQueries, weight);
        sum += weight;
      }
      total_[v] = total_[v] * factor + sum;
      most_[v] = larger;
      for (int64_t c = 0; c < block_.value_depth; ++c) {
        E* const to = sums_ + c * kQueries + v * kLanes;
        Mem<E>::Store(to, Mem<E>::Load(to) * factor);
      }
    }
    Tile::Accumulate(Widened<S>(static_cast<const S*>(block_.value) + row * block_.value_row, n, block_.value_depth, block_.value_row, staged_), n, block_.value_depth, weights_, sums_);
  }

  void AddMask(int64_t j0, int64_t n) {
    for (int64_t r = 0; r < (block_.one_mask ? 1 : block_.count); ++r) {
      const int64_t at = block_.queries[r].mask + j0 * block_.mask_column;
      if (block_.mask_is_bool) {
        for (int64_t j = 0; j < n; ++j) {
          if (static_cast<const uint8_t*>(block_.mask)[at + j * block_.mask_column] == 0) ChangeWeight(j, r, [](auto) { return kNothing; });
        }
      } else {
        S row[kRows];
        E wide[kRows];
        for (int64_t j = 0; j < n; ++j) row[j] = static_cast<const S*>(block_.mask)[at + j * block_.mask_column];
        const Rows<E> added = Widened<S>(row, 1, n, 0, wide);
        for (int64_t j = 0; j < n; ++j) ChangeWeight(j, r, [a = added.data[j]](E weight) { return weight + a; });
      }
    }
  }
  // Of key j and query r, or of all queries where they share a row of the mask.
  template <typename F>
  void ChangeWeight(int64_t j, int64_t r, const F& f) {
    E* const of_key = weights_ + j * kQueries;
    if (!block_.one_mask) of_key[r] = f(of_key[r]);
    else for (int q = 0; q < kQueries; ++q) of_key[q] = f(of_key[q]);
  }

  void Finish() {
    E logs[kQueries];
    for (int v = 0; v < kVectors; ++v) {
      const Mask<E> none = total_[v] == 0;
      const Vec<E> factor = 1 / total_[v];
      for (int64_t c = 0; c < block_.value_depth; ++c) {
        E* const to = sums_ + c * kQueries + v * kLanes;
        Mem<E>::Store(to, none ? Vec<E>{} : Mem<E>::Load(to) * factor);
      }
      Mem<E>::Store(logs + v * kLanes, none ? Splat(kNothing) : most_[v] + Log(total_[v]));
    }
    for (int64_t r = 0; r < block_.count; ++r) static_cast<E*>(block_.log_sum_exp)[block_.queries[r].log_sum_exp] = logs[r];
    StoreLanes<S>(sums_, kQueries, block_.count, block_.value_depth, E{1}, [&](int64_t r) { return static_cast<S*>(block_.output) + block_.queries[r].output; });
  }

  static constexpr E kNothing = -static_cast<E>(__builtin_inf());

  const AttentionBlock& block_;
  Vec<E> most_[kVectors], total_[kVectors];
  alignas(64) E queries_[kAttentionDepth * kQueries];  // scaled, by elements of a head
  alignas(64) E sums_[kAttentionDepth * kQueries];     // by columns of value
  alignas(64) E weights_[kRows * kQueries];            // by keys; before that scores
  alignas(64) E staged_[kAsComputed<S> ? 1 : kRows * kAttentionDepth];
};

template <typename S>
constexpr void Set(AttentionLoops* loops, int type) {
  constexpr int kLanes = Mem<S>::kLanes, kTwo = 2;
  const AttentionWidth widths[kAttentionWidths] = {{kLanes, Block<S, 1>::Run}, {kTwo * kLanes, Block<S, kTwo>::Run}, {kWideVectors * kLanes, Block<S, kWideVectors>::Run}};
  for (int w = 0; w < kAttentionWidths; ++w) loops->of[type][w] = widths[w];
}

constexpr AttentionLoops Loops() {
  AttentionLoops loops{};
  Set<double>(&loops, OPW_F64);
  Set<float>(&loops, OPW_F32);
  Set<Half>(&loops, OPW_F16);
  Set<Brain>(&loops, OPW_BF16);
  return loops;
}
constexpr AttentionLoops kAttentionLoops = Loops();

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA

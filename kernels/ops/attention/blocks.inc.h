// Attention of a block of queries. Each query has one lane, so maxima and sums need no step across
// lanes, and keys and values are read in storage order. For a few queries the elements of a head
// are in lanes instead. The includer defines OPWIRE_ISA. After Dao et al., "FlashAttention" (2022).
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/attention/tiles.inc.h"

namespace opwire::ops::attention::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Processes all keys that a block of queries may see, in tiles of contiguous keys.
template <typename Taker>
void RunBlock(const AttentionBlock& b) {
  Taker taker(b);
  for (int64_t j0 = b.first, asked = 1, n = 0; j0 < b.last; j0 += n, ++asked) {
    if (asked % kTilesUnasked == 0 && b.stopped(b.context)) return;
    n = b.last - j0 < kRows ? b.last - j0 : kRows;
    int64_t row = j0;
    if (b.page > 0) {
      const int64_t in_page = j0 % b.page, left = b.page - in_page,
                    begin = b.page_at(b.context, j0 / b.page);
      n = begin < 0 || left < n ? left : n;
      if (begin < 0) continue;
      row = begin + in_page;
    }
    taker.Take(j0, n, row);
  }
  taker.Finish();
}

template <typename E>
constexpr E kNothing =
    -static_cast<E>(__builtin_inf());  // weight of keys that are not seen, before exp

template <typename S, int kVectors>
class Block {
  using E = typename Mem<S>::Compute;
  using Tile = ::opwire::ops::attention::OPWIRE_ISA::Tile<E, kVectors>;
  static constexpr int kLanes = Mem<E>::kLanes, kQueries = Tile::kAcross;
  static_assert(kQueries <= kAttentionQueries);

 public:
  explicit Block(const AttentionBlock& block) : block_(block) {
    // Lanes without a query repeat the last query.
    const auto query = [&](int64_t r) {
      return static_cast<const S*>(block_.query) +
             block_.queries[r < block_.count ? r : block_.count - 1].query;
    };
    LoadLanes<S>(query, kQueries, block_.depth, static_cast<E>(block_.scale), queries_);
    for (int64_t i = 0; i < block_.value_depth * kQueries; i += kLanes)
      Mem<E>::Store(sums_ + i, Vec<E>{});
    for (int v = 0; v < kVectors; ++v) most_[v] = Splat(kNothing<E>), total_[v] = Vec<E>{};
  }

  // Processes keys [j0, j0 + n), up to kRows, which begin at row `row`.
  void Take(int64_t j0, int64_t n, int64_t row) {
    Tile::Products(Widened<S>(static_cast<const S*>(block_.key) + row * block_.key_row, n,
                              block_.depth, block_.key_row, staged_),
                   n, block_.depth, queries_, weights_);
    if (block_.mask != nullptr) AddMask(j0, n);
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t before = block_.queries[r].first - j0, after = block_.queries[r].last - j0;
      for (int64_t j = 0; j < n && j < before; ++j) weights_[j * kQueries + r] = kNothing<E>;
      for (int64_t j = after > 0 ? after : 0; j < n; ++j) weights_[j * kQueries + r] = kNothing<E>;
    }
    for (int v = 0; v < kVectors; ++v) {
      E* const column = weights_ + v * kLanes;
      Vec<E> larger = most_[v], sum{};
      for (int64_t j = 0; j < n; ++j)
        larger = Larger()(larger, Mem<E>::Load(column + j * kQueries));
      const Vec<E> base = larger == kNothing<E> ? Vec<E>{} : larger, factor = Exp(most_[v] - base);
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
    Tile::Accumulate(Widened<S>(static_cast<const S*>(block_.value) + row * block_.value_row, n,
                                block_.value_depth, block_.value_row, staged_),
                     n, block_.value_depth, weights_, sums_);
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
      Mem<E>::Store(logs + v * kLanes, none ? Splat(kNothing<E>) : most_[v] + Log(total_[v]));
    }
    for (int64_t r = 0; r < block_.count; ++r)
      static_cast<E*>(block_.log_sum_exp)[block_.queries[r].log_sum_exp] = logs[r];
    StoreLanes<S>(sums_, kQueries, block_.count, block_.value_depth, E{1}, [&](int64_t r) {
      return static_cast<S*>(block_.output) + block_.queries[r].output;
    });
  }

 private:
  void AddMask(int64_t j0, int64_t n) {
    for (int64_t r = 0; r < (block_.one_mask ? 1 : block_.count); ++r) {
      const int64_t at = block_.queries[r].mask + j0 * block_.mask_column;
      if (block_.mask_is_bool) {
        for (int64_t j = 0; j < n; ++j) {
          if (static_cast<const uint8_t*>(block_.mask)[at + j * block_.mask_column] == 0)
            ChangeWeight(j, r, [](auto) { return kNothing<E>; });
        }
      } else {
        S row[kRows];
        E wide[kRows];
        for (int64_t j = 0; j < n; ++j)
          row[j] = static_cast<const S*>(block_.mask)[at + j * block_.mask_column];
        const Rows<E> added = Widened<S>(row, 1, n, 0, wide);
        for (int64_t j = 0; j < n; ++j)
          ChangeWeight(j, r, [a = added.data[j]](E weight) { return weight + a; });
      }
    }
  }
  // The weight of key j and query r, or of all queries if they share a row of the mask.
  template <typename F>
  void ChangeWeight(int64_t j, int64_t r, const F& f) {
    E* const of_key = weights_ + j * kQueries;
    if (!block_.one_mask)
      of_key[r] = f(of_key[r]);
    else
      for (int q = 0; q < kQueries; ++q) of_key[q] = f(of_key[q]);
  }

  const AttentionBlock& block_;
  Vec<E> most_[kVectors], total_[kVectors];
  alignas(64) E queries_[kAttentionDepth * kQueries];  // scaled, by elements of a head
  alignas(64) E sums_[kAttentionDepth * kQueries];     // by columns of value
  alignas(64) E weights_[kRows * kQueries];            // by keys; before that scores
  alignas(64) E staged_[kAsComputed<S> ? 1 : kRows * kAttentionDepth];
};

// Exactly kQueries queries, whose elements are in lanes.
template <typename S, int kQueries>
class Few {
  using E = typename Mem<S>::Compute;
  static constexpr int kLanes = Mem<E>::kLanes;
  static constexpr int kColumns = 4;  // vectors of values whose sums are in registers

 public:
  explicit Few(const AttentionBlock& block) : block_(block) {
    for (int r = 0; r < kQueries; ++r) {
      const S* const from = static_cast<const S*>(block.query) + block.queries[r].query;
      ForVectors<E>(block.depth, [&](int64_t i, auto lanes) {
        Mem<E>::Store(queries_[r] + i, lanes.Load(from + i) * Splat(static_cast<E>(block.scale)));
      });
      ForVectors<E>(block.value_depth,
                    [&](int64_t i, auto) { Mem<E>::Store(sums_[r] + i, Vec<E>{}); });
      most_[r] = kNothing<E>, total_[r] = 0;
    }
  }

  // Processes keys [j0, j0 + n), up to kRows, which begin at row `row`.
  void Take(int64_t j0, int64_t n, int64_t row) {
    Products(static_cast<const S*>(block_.key) + row * block_.key_row, n);
    for (int r = 0; r < kQueries; ++r) {
      const AttentionBlock::Query& q = block_.queries[r];
      if (block_.mask != nullptr) AddMask(q.mask + j0 * block_.mask_column, n, weights_[r]);
      for (int64_t j = 0; j < n && j < q.first - j0; ++j) weights_[r][j] = kNothing<E>;
      for (int64_t j = q.last > j0 ? q.last - j0 : 0; j < n; ++j) weights_[r][j] = kNothing<E>;
    }
    E factors[kQueries];
    for (int r = 0; r < kQueries; ++r) {
      E* const weights = weights_[r];
      const E larger = ReduceWith(weights, n, most_[r], Same(), Larger()),
              base = larger == kNothing<E> ? 0 : larger;
      factors[r] = Exp(Splat(most_[r] - base))[0];
      ForVectors<E>(n, [&](int64_t j, auto lanes) {
        lanes.Store(weights + j, Exp(lanes.Load(weights + j) - Splat(base)));
      });
      total_[r] = total_[r] * factors[r] + ReduceWith(weights, n, E{0}, Same(), Plus());
      most_[r] = larger;
    }
    const S* const values = static_cast<const S*>(block_.value) + row * block_.value_row;
    int64_t c = 0;
    for (; c + kColumns * kLanes <= block_.value_depth; c += kColumns * kLanes)
      Accumulate<kColumns>(values, n, c, Whole(), factors);
    for (; c + kLanes <= block_.value_depth; c += kLanes)
      Accumulate<1>(values, n, c, Whole(), factors);
    if (c < block_.value_depth) Accumulate<1>(values, n, c, Part{block_.value_depth - c}, factors);
  }

  void Finish() {
    for (int r = 0; r < kQueries; ++r) {
      const bool none = total_[r] == 0;
      const Vec<E> factor = Splat(none ? E{0} : 1 / total_[r]);
      S* const to = static_cast<S*>(block_.output) + block_.queries[r].output;
      ForVectors<E>(block_.value_depth, [&](int64_t i, auto lanes) {
        lanes.Store(to + i, none ? Vec<E>{} : Mem<E>::Load(sums_[r] + i) * factor);
      });
      static_cast<E*>(block_.log_sum_exp)[block_.queries[r].log_sum_exp] =
          none ? kNothing<E> : most_[r] + Log(Splat(total_[r]))[0];
    }
  }

 private:
  // Scores of n keys, in groups whose sums fill a vector. Extra lanes of the last group are not
  // used.
  void Products(const S* keys, int64_t n) {
    for (int64_t j = 0; j < n; j += kLanes) {
      Vec<E> parts[kQueries][kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const S* const key = keys + (j + i < n ? j + i : n - 1) * block_.key_row;
        Vec<E> sums[kQueries] = {};
        ForVectors<E>(block_.depth, [&](int64_t l, auto lanes) {
          const Vec<E> k = lanes.Load(key + l);
          for (int r = 0; r < kQueries; ++r)
            sums[r] = Fma(k, Mem<E>::Load(queries_[r] + l), sums[r]);
        });
        for (int r = 0; r < kQueries; ++r) parts[r][i] = sums[r];
      }
      for (int r = 0; r < kQueries; ++r) Mem<E>::Store(weights_[r] + j, SumsOf<E>(parts[r]));
    }
  }

  void AddMask(int64_t at, int64_t n, E* weights) {
    for (int64_t j = 0; j < n; ++j, at += block_.mask_column) {
      if (!block_.mask_is_bool)
        weights[j] += Mem<S>::LoadN(static_cast<const S*>(block_.mask) + at, 1)[0];
      else if (static_cast<const uint8_t*>(block_.mask)[at] == 0)
        weights[j] = kNothing<E>;
    }
  }

  // Columns starting with c: sums times factors, plus n values times their weights.
  template <int kVectors, typename Lanes>
  void Accumulate(const S* values, int64_t n, int64_t c, Lanes lanes, const E* factors) {
    Vec<E> sums[kQueries][kVectors];
    for (int r = 0; r < kQueries; ++r) {
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = Mem<E>::Load(sums_[r] + c + v * kLanes) * Splat(factors[r]);
    }
    for (int64_t j = 0; j < n; ++j) {
      const S* const value = values + j * block_.value_row + c;
      for (int v = 0; v < kVectors; ++v) {
        const Vec<E> of_row = lanes.Load(value + v * kLanes);
        for (int r = 0; r < kQueries; ++r)
          sums[r][v] = Fma(Splat(weights_[r][j]), of_row, sums[r][v]);
      }
    }
    for (int r = 0; r < kQueries; ++r) {
      for (int v = 0; v < kVectors; ++v) Mem<E>::Store(sums_[r] + c + v * kLanes, sums[r][v]);
    }
  }

  const AttentionBlock& block_;
  E most_[kQueries], total_[kQueries];
  alignas(64) E queries_[kQueries][kAttentionDepth];  // scaled
  alignas(64) E sums_[kQueries][kAttentionDepth];
  alignas(64) E weights_[kQueries][kRows];  // before that scores
};

template <typename S>
constexpr void Set(AttentionLoops* loops, int type) {
  constexpr int kLanes = Mem<S>::kLanes;
  const AttentionWidth widths[kAttentionWidths] = {
      {1, RunBlock<Few<S, 1>>},
      {2, RunBlock<Few<S, 2>>},
      {3, RunBlock<Few<S, 3>>},
      {4, RunBlock<Few<S, 4>>},
      {kLanes, RunBlock<Block<S, 1>>},
      {2 * kLanes, RunBlock<Block<S, 2>>},
      {kWideVectors * kLanes, RunBlock<Block<S, kWideVectors>>}};
  for (int w = 0; w < kAttentionWidths; ++w) loops->of[type][w] = widths[w];
}

constexpr AttentionLoops Loops() {
  AttentionLoops loops{};
  Set<double>(&loops, OPW_F64);
  Set<float>(&loops, OPW_F32);
  Set<Half>(&loops, OPW_F16);
  Set<BFloat16>(&loops, OPW_BF16);
  return loops;
}
constexpr AttentionLoops kAttentionLoops = Loops();

}  // namespace
}  // namespace opwire::ops::attention::OPWIRE_ISA

// Gradients of attention, with a block of queries or of keys in lanes. The includer defines
// OPWIRE_ISA. The weights are computed again from scores and logsumexp, after Dao et al.,
// "FlashAttention" (2022).
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/attention/tiles.inc.h"

namespace opwire::ops::attention::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

template <typename S, bool kOfKeys>
class BackwardBlock {
  using E = typename Mem<S>::Compute;
  using Tile = ::opwire::ops::attention::OPWIRE_ISA::Tile<E, kWideVectors>;
  static constexpr int kLanes = Mem<E>::kLanes, kAcross = Tile::kAcross;
  static_assert(kAcross <= kAttentionQueries);

 public:
  static void Run(const AttentionBackwardBlock& b) {
    BackwardBlock block(b);
    int64_t asked = 1;
    for (int64_t h = 0; h < b.heads; ++h) {
      for (int64_t j = b.first; j < b.last; j += kRows, ++asked) {
        if (asked % kTilesUnasked == 0 && b.stopped(b.context)) return;
        block.Take(h, j, b.last - j < kRows ? b.last - j : kRows);
      }
    }
    block.Finish();
  }

 private:
  explicit BackwardBlock(const AttentionBackwardBlock& block) : block_(block) {
    const auto lane = [&](int64_t r) -> const auto& {
      return block_.lanes[r < block_.count ? r : block_.count - 1];
    };  // lanes beyond the last query or key repeat it
    LoadLanes<S>([&](int64_t r) { return static_cast<const S*>(block_.lane_a) + lane(r).a; },
                 kAcross, block_.depth, static_cast<E>(block_.scale), lanes_a_);
    LoadLanes<S>([&](int64_t r) { return static_cast<const S*>(block_.lane_b) + lane(r).b; },
                 kAcross, block_.value_depth, E{1}, lanes_b_);
    if constexpr (!kOfKeys) {
      for (int r = 0; r < kAcross; ++r) {
        const Rows<E> b = Widened<S>(static_cast<const S*>(block_.lane_b) + lane(r).b, 1,
                                     block_.value_depth, 0, staged_b_);
        log_[r] = Known(static_cast<const E*>(block_.log_sum_exp)[lane(r).log_sum_exp]);
        dot_[r] = Dot(b.data, static_cast<const S*>(block_.output) + lane(r).output);
      }
    }
    for (int64_t i = 0; i < block_.depth * kAcross; i += kLanes)
      Mem<E>::Store(sums_a_ + i, Vec<E>{});
    if constexpr (kOfKeys) {
      for (int64_t i = 0; i < block_.value_depth * kAcross; i += kLanes)
        Mem<E>::Store(sums_b_ + i, Vec<E>{});
    }
  }

  // A query that sees no key has no weights.
  static E Known(E log_sum_exp) { return log_sum_exp == kNothing ? E{} : log_sum_exp; }
  // The dot product of a row of the output and of its gradient.
  E Dot(const E* grad, const S* output) {
    const Rows<E> row = Widened<S>(output, 1, block_.value_depth, 0, staged_output_);
    Vec<E> sums{};
    int64_t c = 0;
    for (; c + kLanes <= block_.value_depth; c += kLanes)
      sums = Fma(Mem<E>::Load(grad + c), Mem<E>::Load(row.data + c), sums);
    E sum{};
    for (int i = 0; i < kLanes; ++i) sum += sums[i];
    for (; c < block_.value_depth; ++c) sum += grad[c] * row.data[c];
    return sum;
  }

  // Adds rows [j0, j0 + n) of head h.
  void Take(int64_t h, int64_t j0, int64_t n) {
    const AttentionBackwardBlock& b = block_;
    const Rows<E> rows_a =
        Widened<S>(static_cast<const S*>(b.row_a) + h * b.head_a + j0 * b.row_a_stride, n, b.depth,
                   b.row_a_stride, staged_a_);
    const Rows<E> rows_b =
        Widened<S>(static_cast<const S*>(b.row_b) + h * b.head_b + j0 * b.row_b_stride, n,
                   b.value_depth, b.row_b_stride, staged_b_);
    Tile::Products(rows_a, n, b.depth, lanes_a_, weights_);
    Tile::Products(rows_b, n, b.value_depth, lanes_b_, slopes_);
    if (b.mask != nullptr) AddMask(h, j0, n);
    for (int64_t r = 0; r < b.count; ++r) {
      const int64_t before = b.lanes[r].first - j0, after = b.lanes[r].last - j0;
      for (int64_t j = 0; j < n && j < before; ++j) weights_[j * kAcross + r] = kNothing;
      for (int64_t j = after > 0 ? after : 0; j < n; ++j) weights_[j * kAcross + r] = kNothing;
    }
    for (int64_t j = 0; j < n; ++j) {
      E log{}, dot{};
      if constexpr (kOfKeys) {
        log = Known(static_cast<const E*>(
            b.log_sum_exp)[h * b.head_log_sum_exp + (j0 + j) * b.row_log_sum_exp]);
        dot = Dot(rows_b.data + j * rows_b.stride,
                  static_cast<const S*>(b.output) + h * b.head_output + (j0 + j) * b.row_output);
      }
      for (int v = 0; v < kWideVectors; ++v) {
        E *const weight = weights_ + j * kAcross + v * kLanes, *const slope = slopes_ +
                                                                              j * kAcross +
                                                                              v * kLanes;
        const Vec<E> w =
            Exp(Mem<E>::Load(weight) - (kOfKeys ? Splat(log) : Mem<E>::Load(log_ + v * kLanes)));
        const Vec<E> s =
            w * (Mem<E>::Load(slope) - (kOfKeys ? Splat(dot) : Mem<E>::Load(dot_ + v * kLanes)));
        Mem<E>::Store(weight, w);
        Mem<E>::Store(slope, w == 0 ? Vec<E>{} : s);
      }
    }
    Tile::Accumulate(rows_a, n, b.depth, slopes_, sums_a_);
    if constexpr (kOfKeys) Tile::Accumulate(rows_b, n, b.value_depth, weights_, sums_b_);
  }

  void AddMask(int64_t h, int64_t j0, int64_t n) {
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t at = block_.lanes[r].mask + h * block_.head_mask + j0 * block_.row_mask;
      if (block_.mask_is_bool) {
        for (int64_t j = 0; j < n; ++j) {
          if (static_cast<const uint8_t*>(block_.mask)[at + j * block_.row_mask] == 0)
            weights_[j * kAcross + r] = kNothing;
        }
      } else {
        S row[kRows];
        E wide[kRows];
        for (int64_t j = 0; j < n; ++j)
          row[j] = static_cast<const S*>(block_.mask)[at + j * block_.row_mask];
        const Rows<E> added = Widened<S>(row, 1, n, 0, wide);
        for (int64_t j = 0; j < n; ++j) weights_[j * kAcross + r] += added.data[j];
      }
    }
  }

  void Finish() {
    StoreLanes<S>(
        sums_a_, kAcross, block_.count, block_.depth, static_cast<E>(block_.scale),
        [&](int64_t r) { return static_cast<S*>(block_.grad_a) + block_.lanes[r].grad_a; });
    if constexpr (kOfKeys) {
      StoreLanes<S>(sums_b_, kAcross, block_.count, block_.value_depth, E{1}, [&](int64_t r) {
        return static_cast<S*>(block_.grad_b) + block_.lanes[r].grad_b;
      });
    }
  }

  static constexpr E kNothing = -static_cast<E>(__builtin_inf());
  static constexpr int64_t kStaged = kAsComputed<S> ? 1 : kRows * kAttentionDepth;

  const AttentionBackwardBlock& block_;
  alignas(64) E log_[kAcross], dot_[kAcross];         // of queries in lanes
  alignas(64) E lanes_a_[kAttentionDepth * kAcross];  // scaled, by elements of a head
  alignas(64) E lanes_b_[kAttentionDepth * kAcross];
  alignas(64) E sums_a_[kAttentionDepth * kAcross];  // the gradients, the same way
  alignas(64) E sums_b_[kOfKeys ? kAttentionDepth * kAcross : 1];
  alignas(64) E weights_[kRows * kAcross], slopes_[kRows * kAcross];  // by rows
  alignas(64) E staged_a_[kStaged], staged_b_[kStaged],
      staged_output_[kAsComputed<S> ? 1 : kAttentionDepth];
};

template <typename S>
constexpr void SetBackward(AttentionBackwardLoops* loops, int type) {
  loops->of_queries[type] = BackwardBlock<S, false>::Run;
  loops->of_keys[type] = BackwardBlock<S, true>::Run;
  loops->lanes[type] = Tile<typename Mem<S>::Compute, kWideVectors>::kAcross;
}

constexpr AttentionBackwardLoops BackwardLoops() {
  AttentionBackwardLoops loops{};
  SetBackward<double>(&loops, OPW_F64);
  SetBackward<float>(&loops, OPW_F32);
  SetBackward<Half>(&loops, OPW_F16);
  SetBackward<BFloat16>(&loops, OPW_BF16);
  return loops;
}
constexpr AttentionBackwardLoops kAttentionBackwardLoops = BackwardLoops();

}  // namespace
}  // namespace opwire::ops::attention::OPWIRE_ISA

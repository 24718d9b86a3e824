// A row of logits from which a token is drawn. The includer provides the search for the kept
// elements: Search has
//   template <typename Measure> static Cut Find(const Row&, uint64_t last, uint64_t wanted, const
//       Measure&)
// It finds the cut at which the measures of a row's elements, added in order of rank, reach
// `wanted`: at rank `last` at the latest. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SAMPLING_SAMPLER_H_
#define OPWIRE_KERNELS_OPS_SAMPLING_SAMPLER_H_

#include <bit>
#include <limits>

#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/create/random.h"
#include "kernels/ops/sort/cpu_loops.h"
#include "kernels/ops/sort/keys.h"

namespace opwire::ops::sampling {

namespace weights {
inline double DoubleOf(unsigned long long bits) { return std::bit_cast<double>(bits); }
#define OPWIRE_FUNCTION inline
#include "kernels/ops/sampling/weight.inc.h"
#undef OPWIRE_FUNCTION
}  // namespace weights

// Elements of ranks below `rank` come first, then elements of that rank in the order of their
// indices. `left` is the measure that the latter must still reach.
struct Cut {
  uint64_t rank, left;
};

// Elements by rank: the largest element has rank 0.
template <typename T, typename Key>
class Row {
 public:
  static constexpr int kBits = sizeof(T) * 8;
  // `find` skips elements; null: each element is checked. REQUIRES: a stride of 1 for it.
  Row(const opw_call* c, const T* x, int64_t stride, int64_t n, sort::FindBelow find)
      : c_(c), x_(x), stride_(stride), n_(n), find_(find) {}

  int64_t size() const { return n_; }
  double Value(int64_t i) const {
    const double v = Load<T>(x_, i * stride_);
    return v == v ? v : -std::numeric_limits<double>::infinity();
  }
  uint64_t Rank(int64_t i) const {
    using Bits = typename Key::Bits;
    const Bits bits = std::bit_cast<Bits>(x_[i * stride_]);
    if (static_cast<Bits>(bits & static_cast<Bits>(~Key::kTop)) > Key::kInfinity)
      return static_cast<Bits>(Key::kTop | Key::kInfinity);  // -inf's
    return static_cast<Bits>(~Key::Key(bits));
  }
  // Calls f(i, rank) for ranks up to `last`, which it may lower, in order of indices while it
  // returns true. False: the run was stopped.
  template <typename F>
  bool ForEach(const uint64_t& last, const F& f) const {
    for (int64_t i = 0; i < n_; ++i) {
      if (find_ != nullptr && last < static_cast<typename Key::Bits>(~typename Key::Bits{0})) {
        const int64_t end = std::min(n_, (i / kReferenceGrain + 1) * kReferenceGrain);
        i = find_(x_, i, end, ~uint64_t{0}, last + 1);
        if (i == end) {
          if (Stopped(c_)) return false;
          --i;
          continue;
        }
      } else if (StoppedAt(c_, i)) {
        return false;
      }
      const uint64_t rank = Rank(i);
      if (rank <= last && !f(i, rank)) break;
    }
    return true;
  }

 private:
  const opw_call* const c_;
  const T* const x_;
  const int64_t stride_, n_;
  const sort::FindBelow find_;
};

template <typename T, typename Key, typename Search>
class Sampler {
 public:
  explicit Sampler(const Row<T, Key>& row) : row_(row) {}

  // The token for 64 random bits; -1: the run was stopped.
  int64_t Draw(double temperature, int64_t top_k, double top_p, uint64_t random) {
    int64_t first = 0;
    uint64_t better = ~uint64_t{0};
    if (!row_.ForEach(better, [&](int64_t i, uint64_t rank) {
          best_ = rank;
          first = i;
          better = rank - 1;
          return rank > 0;
        }))
      return -1;
    if (!(temperature > 0)) return first;
    most_ = row_.Value(first);
    temperature_ = temperature;
    Cut kept{~uint64_t{0}, 0};  // all; left: number of kept elements of its rank
    if (top_k > 0 && top_k < row_.size())
      kept = Search::Find(row_, kept.rank, static_cast<uint64_t>(top_k),
                          [](int64_t, uint64_t) { return uint64_t{1}; });
    if (top_p < 1) {
      const Cut at = Search::Find(row_, kept.rank, weights::ShareOf(top_p, Sum(kept)),
                                  [&](int64_t i, uint64_t rank) { return Weight(i, rank); });
      uint64_t each = 1;
      row_.ForEach(at.rank, [&](int64_t i, uint64_t rank) {
        if (rank == at.rank) each = Weight(i, rank);
        return rank != at.rank;
      });
      kept = {at.rank, each == 0 ? 0 : (at.left - 1) / each + 1};
    }
    const uint64_t target =
        static_cast<uint64_t>(static_cast<unsigned __int128>(random) * Sum(kept) >> 64);
    uint64_t sum = 0;
    int64_t token = -1;
    ForKept(kept, [&](int64_t i, uint64_t rank) {
      sum += Weight(i, rank);
      if (sum > target) token = i;
      return token < 0;
    });
    return token;
  }

 private:
  uint64_t Weight(int64_t i, uint64_t rank) const {
    return rank == best_ ? weights::kFullWeight
                         : weights::WeightOf((row_.Value(i) - most_) / temperature_);
  }
  template <typename F>
  void ForKept(const Cut& kept, const F& f) const {
    uint64_t ties = 0;
    row_.ForEach(kept.rank, [&](int64_t i, uint64_t rank) {
      return rank < kept.rank || ties++ < kept.left ? f(i, rank) : true;
    });
  }
  uint64_t Sum(const Cut& kept) const {
    uint64_t sum = 0;
    ForKept(kept, [&](int64_t i, uint64_t rank) {
      sum += Weight(i, rank);
      return true;
    });
    return sum;
  }

  const Row<T, Key>& row_;
  uint64_t best_ = 0;
  double most_ = 0, temperature_ = 1;
};

// Samples the rows of a call; a range has `rows` of them. `find`: as in Row.
template <typename Search>
int SampleRows(const opw_call* c, int64_t rows, sort::FindBelow find) {
  const opw_tensor &logits = Operand(c, 0), &key = Operand(c, 1), &tokens = c->results[0];
  const auto of_row = [](const opw_tensor& t, int64_t row) {
    return t.rank == 0 ? 0 : row * t.strides[0];
  };
  const auto number = [&](int operand, int64_t row) {
    const opw_tensor& t = Operand(c, operand);
    return Absent(t) ? 1.0 : static_cast<double>(static_cast<const float*>(t.data)[of_row(t, row)]);
  };
  const uint64_t* const words = static_cast<const uint64_t*>(key.data);
  const create::portable::RandomKey random{
      words[0], words[key.strides[0]] + static_cast<uint64_t>(c->attrs[0].value.i)};
  VisitType(TypeOf(logits), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>> && sizeof(T) > 1) {
      sort::portable::VisitKey(logits.dtype, [&](auto type) {
        using Key = decltype(type);
        if constexpr (Key::kInfinity != 0 && sizeof(typename Key::Bits) == sizeof(T)) {
          ParallelFor(c, tokens.elements, rows, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
              const Row<T, Key> row(c, static_cast<const T*>(logits.data) + r * logits.strides[0],
                                    logits.strides[1], logits.shape[1], find);
              uint32_t lanes[4][1];
              create::portable::random::Philox(random, static_cast<uint64_t>(r) / 2, lanes);
              const int lane = static_cast<int>(r % 2) * 2;
              const int64_t k =
                  Absent(Operand(c, 3)) ? 0 : LoadIndex(Operand(c, 3), of_row(Operand(c, 3), r));
              const int64_t token = Sampler<T, Key, Search>(row).Draw(
                  number(2, r), k, number(4, r),
                  uint64_t{lanes[lane][0]} << 32 | lanes[lane + 1][0]);
              if (token < 0) return;
              static_cast<int64_t*>(tokens.data)[r * tokens.strides[0]] = token;
            }
          });
        }
      });
    }
  });
  return OPW_OK;
}

}  // namespace opwire::ops::sampling

#endif  // OPWIRE_KERNELS_OPS_SAMPLING_SAMPLER_H_

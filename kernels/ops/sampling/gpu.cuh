// sample: one block per row. The kept elements are found by the ranks' digits, the highest first,
// without sorting. All sums are of integers, so their order does not matter.
#include "kernels/ops/create/gpu.cuh"
#include "kernels/ops/sampling/gpu_params.h"
#include "kernels/ops/sort/gpu.cuh"

namespace opw::sampling {

#define OPWIRE_FUNCTION OPW_DEVICE
#include "kernels/ops/sampling/weight.inc.h"
#undef OPWIRE_FUNCTION

// Elements of ranks below `rank` come first, then elements of that rank in the order of their
// indices. `left` is the measure that the latter must still reach.
struct Cut {
  u64 rank, left;
};

template <typename T>
OPW_DEVICE double ValueOf(T v) {
  const double value = static_cast<double>(Load(v));
  return value == value ? value : -Infinity<double>();
}
// The largest element has rank 0; a NaN has the rank of -inf.
template <typename T>
OPW_DEVICE u64 RankOf(T v) {
  using K = RawOf<T>;
  const auto value = Load(v);
  if (value != value) return static_cast<K>(K(1) << (sizeof(K) * 8 - 1) | sort::kInfinityBits<T>);
  return static_cast<K>(~sort::KeyOf(v));
}
template <typename T>
OPW_DEVICE double ValueOfRank(u64 rank) {
  const T zero{};
  return ValueOf(sort::ElementOf<T>(static_cast<RawOf<T>>(~rank), &zero));
}

// The cut at which the measures of a row's elements, added in order of rank, reach `wanted`.
template <typename T, typename F>
OPW_DEVICE Cut Find(const T* x, i64 n, u64 wanted, const F& measure) {
  __shared__ u64 bins[256];
  __shared__ u64 found[2];  // the digit, and the sum before it
  Cut cut = {0, wanted};
  for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += static_cast<int>(blockDim.x))
      bins[i] = 0;
    __syncthreads();
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
      const T v = x[i];
      const u64 rank = RankOf(v);
      if (rank >> shift >> 8 != cut.rank >> shift >> 8) continue;
      if (const u64 m = measure(v, rank); m != 0) atomicAdd(&bins[rank >> shift & 255], m);
    }
    __syncthreads();
    const u64 own = threadIdx.x < 256 ? bins[threadIdx.x] : 0;
    u64 all;
    const u64 before = SumBefore<0>(own, all);
    if (before < cut.left && cut.left <= before + own) {
      found[0] = threadIdx.x;
      found[1] = before;
    }
    __syncthreads();
    cut.rank |= found[0] << shift;
    cut.left -= found[1];
    __syncthreads();  // before they are written again
  }
  return cut;
}

template <typename T, typename I>
OPW_DEVICE void Sample(const SampleParams& p) {
  constexpr int kMostWarps = 1024 / OPW_WARP;
  __shared__ u64 sums[kMostWarps],
      ties[kMostWarps];  // of a warp's part of the row: weights of ranks below the cut's, and the
                         // number of elements of its rank
  const int warps = static_cast<int>(blockDim.x) / OPW_WARP;
  const u64* const words = static_cast<const u64*>(p.key);
  const create::Key key = {words[0], words[1] + static_cast<u64>(p.site)};
  const i64 n = p.extent, part = (n + blockDim.x - 1) / blockDim.x * OPW_WARP;
  const u64 below = (u64(1) << Lane()) - 1;
  for (i64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* const x = static_cast<const T*>(p.logits) + row * n;
    const double temperature = p.temperature == nullptr
                                   ? 1.0
                                   : static_cast<double>(p.temperature[row * p.temperature_step]);
    const double top_p =
        p.top_p == nullptr ? 1.0 : static_cast<double>(p.top_p[row * p.top_p_step]);
    const i64 top_k = p.top_k == nullptr
                          ? 0
                          : static_cast<i64>(static_cast<const I*>(p.top_k)[row * p.top_k_step]);
    u64 best = ~u64(0);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) best = Min()(RankOf(x[i]), best);
    best = GroupReduce<0>(best, Min(), ~u64(0));
    const double most = ValueOfRank<T>(best);
    const auto weight = [&](double v, u64 rank) -> u64 {
      return rank == best ? kFullWeight : WeightOf((v - most) / temperature);
    };
    const auto weigh = [&](T v, u64 rank) -> u64 { return weight(ValueOf(v), rank); };
    // The kept elements; left: the number of those with its rank.
    Cut kept = {~u64(0), 0};
    const auto sum_part = [&] {
      u64 sum = 0, count = 0;
      for (i64 i = Warp() * part + Lane(); i < n && i < (Warp() + 1) * part; i += OPW_WARP) {
        const T v = x[i];
        const u64 rank = RankOf(v);
        if (rank < kept.rank) sum += weigh(v, rank);
        count += rank == kept.rank;
      }
      sum = WarpReduce(sum, Sum());
      count = WarpReduce(count, Sum());
      __syncthreads();  // earlier contents may still be read
      if (Lane() == 0) sums[Warp()] = sum, ties[Warp()] = count;
      __syncthreads();
    };
    // The weight of each kept element of rank kept.rank.
    const auto tie_weight = [&]() -> u64 {
      return kept.rank == ~u64(0) ? 0 : weight(ValueOfRank<T>(kept.rank), kept.rank);
    };
    const auto total = [&]() -> u64 {
      u64 sum = 0, count = 0;
      for (int w = 0; w < warps; ++w) sum += sums[w], count += ties[w];
      return sum + (count < kept.left ? count : kept.left) * tie_weight();
    };
    if (!(temperature > 0)) {
      kept = {best, 1};
    } else {
      if (top_k > 0 && top_k < n)
        kept = Find(x, n, static_cast<u64>(top_k), [](T, u64) -> u64 { return 1; });
      if (top_p < 1) {
        sum_part();
        const u64 last = kept.rank;  // the kept elements end at this rank at the latest
        kept = Find(x, n, ShareOf(top_p, total()),
                    [&](T v, u64 rank) -> u64 { return rank > last ? 0 : weigh(v, rank); });
        const u64 each = tie_weight();  // above 0, unless the logits change meanwhile
        kept.left = each == 0 ? 0 : (kept.left - 1) / each + 1;
      }
    }
    sum_part();
    u32 lanes[4];
    create::Philox(key, static_cast<u64>(row) / 2, lanes);
    const u64 random = row % 2 == 0 ? static_cast<u64>(lanes[0]) << 32 | lanes[1]
                                    : static_cast<u64>(lanes[2]) << 32 | lanes[3];
    const u64 target = __umul64hi(random, total()), each = tie_weight();
    // The warp whose part contains the target searches the part.
    u64 sum = 0, before = 0;  // of the parts before the warp's, and the number of kept ties in them
    u64 own = 0;
    for (int w = 0; w <= Warp(); ++w) {
      sum += own;
      const u64 left = kept.left - before, taken = ties[w] < left ? ties[w] : left;
      own = sums[w] + taken * each;
      if (w < Warp()) before += taken;
    }
    if (sum <= target && target < sum + own) {
      for (i64 base = Warp() * part; base < n; base += OPW_WARP) {
        const i64 i = base + Lane();
        const bool there = i < n;
        const T v = x[there ? i : 0];
        const u64 rank = RankOf(v), tied = Ballot(there && rank == kept.rank);
        const bool is_kept =
            there &&
            (rank < kept.rank ||
             (rank == kept.rank && before + static_cast<u64>(__popcll(tied & below)) < kept.left));
        before += static_cast<u64>(__popcll(tied));
        u64 through = is_kept ? weigh(v, rank) : 0;
#pragma unroll
        for (int by = 1; by < OPW_WARP; by *= 2) {
          const u64 lower = ShuffleUp(through, by);
          if (Lane() >= by) through += lower;
        }
        const u64 reached = Ballot(sum + through > target);
        if (reached != 0) {
          if (Lane() == 0) p.tokens[row] = base + __ffsll(static_cast<i64>(reached)) - 1;
          break;
        }
        sum += ShuffleFrom(through, OPW_WARP - 1);
      }
    }
  }
}

}  // namespace opw::sampling

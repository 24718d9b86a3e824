// Prefix sums over the threads of a group, and counts of equal digits in a warp.
#include "kernels/ops/gpu/rows.cuh"

namespace opw {

// Returns the sum of `v` of the group's threads before this one; `all` becomes the sum of all. All
// threads of the block take part. The sum only uses earlier values, so a later one, an infinity for
// example, does not affect it.
template <int kLanes, typename A>
OPW_DEVICE A SumBefore(A v, A& all) {
  constexpr int kWidth = kLanes == 0 ? OPW_WARP : kLanes;
  const int rank = static_cast<int>(threadIdx.x) % kWidth;
  A sum = v;
#pragma unroll
  for (int by = 1; by < kWidth; by *= 2) {
    const A below = opw::ShuffleUp(sum, by);
    if (rank >= by) sum = below + sum;
  }
  const A below = opw::ShuffleUp(sum, 1);
  A before = rank == 0 ? A(0) : below;
  if constexpr (kLanes != 0) {
    all = opw::ShuffleFrom(sum, Lane() / kLanes * kLanes + kLanes - 1);
  } else {
    __shared__ A warps[1024 / OPW_WARP];
    __syncthreads();  // earlier contents may still be read
    if (rank == OPW_WARP - 1) warps[Warp()] = sum;
    __syncthreads();
    A ahead = 0;
    all = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x) / OPW_WARP; ++w) {
      if (w == Warp()) ahead = all;
      all += warps[w];
    }
    before = ahead + before;
  }
  return before;
}

// Counts `digit` of all lanes of the warp if it is 0 or more: adds their number to counts[digit]. A
// digit has kBits bits, or with kBits = 0 `bits`. Returns the old count, plus one for each earlier
// lane with the same digit. The counts belong to the warp.
template <int kBits, typename A>
OPW_DEVICE A CountInOrder(A* counts, int digit, int bits = 0) {
  u64 same = Ballot(digit >= 0);
  const auto split = [&](int bit) {
    const bool set = (digit >> bit & 1) != 0;
    const u64 with = Ballot(set);
    same &= set ? with : ~with;
  };
  if constexpr (kBits > 0) {
#pragma unroll
    for (int b = 0; b < kBits; ++b) split(b);
  } else {
    for (int b = 0; b < bits; ++b) split(b);
  }
  const u64 before = same & ((u64(1) << Lane()) - 1);
  // The first lane with a digit counts for all of them.
  A counted = 0;
  if (digit >= 0 && before == 0) {
    counted = counts[digit];
    counts[digit] = counted + static_cast<A>(__popcll(same));
  }
  counted = ShuffleFrom(counted, digit >= 0 ? __ffsll(static_cast<i64>(same)) - 1 : Lane());
  WarpBarrier();
  return counted + static_cast<A>(__popcll(before));
}

}  // namespace opw

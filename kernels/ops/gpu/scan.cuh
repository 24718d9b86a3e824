// Sums of what lies before each thread of a group.
#include "kernels/ops/gpu/rows.cuh"

namespace opw {

// The sum of `v` of the group's threads before this one; `all` becomes the sum of all. All threads of the block take part. Of no sum more is taken
// than lies before it, so what comes later, an infinity say, does not touch it.
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
    __syncthreads();  // what was there before may still be read
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

}  // namespace opw

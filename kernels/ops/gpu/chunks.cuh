// Long rows: their chunks, one block each, the results of the chunks, and maps of their elements.
#include "kernels/ops/gpu/rows.cuh"

namespace opw {

// The part of a row that block y of the grid processes.
struct Chunk {
  i64 begin, size;
};
OPW_DEVICE Chunk ChunkOf(i64 extent, i64 chunk) {
  const i64 begin = static_cast<i64>(blockIdx.y) * chunk;
  return {begin, begin + chunk < extent ? chunk : extent - begin};
}

// Joins the results of a row's chunks, for all threads of the block; equal bits in blocks of equal
// size.
template <typename State, typename Op>
OPW_DEVICE State JoinChunks(const State* partials, i64 chunks, Op join, State identity) {
  State all = identity;
  for (i64 c = threadIdx.x; c < chunks; c += blockDim.x) all = join(all, partials[c]);
  return GroupReduce<0>(all, join, identity);
}

// Stores map(element, position, extra value) for n elements. extras(position) returns the extra
// values for a vector's elements starting with that position, to be read with Get. extra(position)
// returns the value for one element. With kBack the last elements are written first; kTrim as in
// SpanOf.
template <int kLanes, bool kBack, bool kTrim, typename T, typename Extras, typename Extra,
          typename F>
OPW_DEVICE void MapSpanWith(const T* x, T* y, i64 n, const Extras& extras, const Extra& extra,
                            const F& map) {
  const bool aligned = Phase(x) == Phase(y);
  ForSpan<kLanes, 4, kBack, kTrim>(
      x, n, [&](i64 at) { y[at] = Store<T>(map(Load(x[at]), at, extra(at))); },
      [&](const Wide<T>* v, int count, i64 at, i64 step) {
#pragma unroll
        for (int b = 0; b < count; ++b) {
          const auto beside = extras(at + b * step);
          ComputeOf<T> out[kPerVector<T>];
#pragma unroll
          for (int k = 0; k < kPerVector<T>; ++k)
            out[k] = map(Load(v[b].Get(k)), at + b * step + k, beside.Get(k));
          StoreWide(y + at + b * step, RoundAll<T>(out), aligned);
        }
      });
}
// The same for map(element, position).
template <int kLanes, bool kBack, typename T, typename F>
OPW_DEVICE void MapSpan(const T* x, T* y, i64 n, const F& map) {
  MapSpanWith<kLanes, kBack, false>(
      x, y, n, [](i64) { return NothingBeside{}; }, [](i64) { return 0; },
      [&](ComputeOf<T> v, i64 at, int) { return map(v, at); });
}

}  // namespace opw

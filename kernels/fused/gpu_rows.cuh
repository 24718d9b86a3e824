// What kernels of rows call beside the primitives: accesses of a few elements at a time, reductions
// by what they reduce, and a barrier of those who share a row.
#include "kernels/fused/primitives.cuh"
#include "kernels/ops/gpu/rows.cuh"
#include "kernels/ops/reduce/gpu_ops.cuh"

namespace opw {

// kItems neighbours, aligned for one access.
template <int kItems, typename T>
OPW_DEVICE Wide<T, kItems> LoadItems(const T* p) {
  constexpr int kBytes = kItems * static_cast<int>(sizeof(T));
  Wide<T, kItems> out;
  if constexpr (kBytes >= 4) {
    const auto words = LoadVector<u32, kBytes / 4>(reinterpret_cast<const u32*>(p));
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) out.words[i] = words.v[i];
  } else {
    out.words[0] = *reinterpret_cast<const typename BitsOfSize<kBytes>::Type*>(p);
  }
  return out;
}
// Elements that lie `stride` apart.
template <int kItems, typename T>
OPW_DEVICE Wide<T, kItems> GatherItems(const T* p, i64 stride) {
  constexpr int kSize = static_cast<int>(sizeof(T));
  Wide<T, kItems> out;
#pragma unroll
  for (int i = 0; i < (kItems * kSize + 3) / 4; ++i) out.words[i] = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const auto bits = *reinterpret_cast<const RawOf<T>*>(p + i * stride);
    out.words[i * kSize / 4] |= static_cast<u32>(bits) << (i * kSize % 4 * 8);
    if constexpr (kSize == 8) out.words[i * 2 + 1] = static_cast<u32>(bits >> 32);
  }
  return out;
}
// What rounds to elements of T on its way, or elements as they are.
template <typename T, int kItems>
OPW_DEVICE void ScatterItems(T* p, i64 stride, const float (&v)[kItems]) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) p[i * stride] = Narrow<T>(v[i]);
}
template <typename T, int kItems>
OPW_DEVICE void ScatterItems(T* p, i64 stride, const Vector<T, kItems>& v) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) p[i * stride] = v.v[i];
}

// What the threads of a row reduce, for all of them.
template <typename Op, int kLanes>
OPW_DEVICE typename Op::Out ReduceGroup(const typename Op::State& own, i64 count) {
  return Op::Finish(GroupReduce<kLanes>(own, Op(), Op::Identity()), count);
}

// What the parts of rows that are cut reduced: 16 bytes each.
template <typename Op>
struct alignas(16) Partial {
  typename Op::State state;
};
template <typename Op>
OPW_DEVICE Partial<Op>* PartialsOf(void* workspace, i64 parts, int reduction) {
  static_assert(sizeof(Partial<Op>) == 16);
  return static_cast<Partial<Op>*>(workspace) + reduction * parts;
}
// By a block, for its part.
template <typename Op>
OPW_DEVICE void PutPartial(Partial<Op>* partials, i64 part, const typename Op::State& own) {
  const typename Op::State all = GroupReduce<0>(own, Op(), Op::Identity());
  if (threadIdx.x == 0) partials[part].state = all;
}
// By a block, of a row: of no more parts than it has threads.
template <typename Op>
OPW_DEVICE typename Op::Out JoinPartials(const Partial<Op>* partials, int parts, i64 count) {
  const int part = static_cast<int>(threadIdx.x);
  return ReduceGroup<Op, 0>(part < parts ? partials[part].state : Op::Identity(), count);
}

// None of the threads that share a row goes on before the others come, and have read what they
// loaded before.
template <int kLanes>
OPW_DEVICE void GroupBarrier() {
  if constexpr (kLanes == 0) {
    __syncthreads();
  } else {
    WarpBarrier();
    (void)Ballot(true);
  }
}

}  // namespace opw

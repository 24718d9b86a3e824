// rotary_embedding: a thread has the angles of some pairs at one position, for all rows that share
// it.
#include "kernels/ops/gpu/device.cuh"
#include "kernels/ops/rotary/gpu_params.h"

namespace opw::rotary {

// kItems pairs per thread, in two vectors of as many elements, or one vector of elements that are
// not rotated. `depth`, `rotated` / 2 and the rest are multiples of kItems.
template <typename T, typename I, bool kInterleaved, int kItems>
OPW_DEVICE void Rotate(const Params& p) {
  using C = ComputeOf<T>;
  const i64 rotating = p.rotated / (2 * kItems), units = rotating + (p.depth - p.rotated) / kItems;
  const bool aligned =
      Aligned<T, kItems>(static_cast<const T*>(p.x)) && Aligned<T, kItems>(static_cast<T*>(p.y));
  const auto load = [&](const T* from) {
    return aligned ? LoadVector<T, kItems>(from) : LoadSome<T, kItems>(from, kItems);
  };
  const auto store = [&](T* to, const Vector<T, kItems>& v) {
    if (aligned)
      StoreVector(to, v);
    else
      StoreSome(to, v, kItems);
  };
  const i64 begin = static_cast<i64>(blockIdx.y) * p.each,
            end = begin + p.each < p.copies ? begin + p.each : p.copies;
  for (i64 i = Index(); i < p.angles * units; i += Stride()) {
    const i64 angle = i / units, unit = i - angle * units;
    i64 own[2];
    OffsetsAt<true>(p.own, angle, own);
    const bool rotates = unit < rotating;
    // The unit's two vectors.
    const i64 first =
        rotates ? unit * kItems * (kInterleaved ? 2 : 1) : p.rotated + (unit - rotating) * kItems;
    const i64 second = first + (kInterleaved ? kItems : p.rotated / 2);
    C sine[kItems], cosine[kItems];
    if (rotates) {
      const i64 position =
          p.positions == nullptr ? own[1] : LoadIndex(static_cast<const I*>(p.positions) + own[1]);
      const C at = static_cast<C>(static_cast<double>(position) * p.scale);
#pragma unroll
      for (int k = 0; k < kItems; ++k)
        SineAndCosine(at * static_cast<const C*>(p.frequencies)[unit * kItems + k], sine[k],
                      cosine[k]);
    }
    for (i64 copy = begin; copy < end; ++copy) {
      i64 shared[1];
      OffsetsAt<true>(p.shared, copy, shared);
      const T* const x = static_cast<const T*>(p.x) + own[0] + shared[0];
      T* const y = static_cast<T*>(p.y) + own[0] + shared[0];
      Vector<T, kItems> low = load(x + first);
      if (rotates) {
        Vector<T, kItems> high = load(x + second);
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
          // Of pair k: element k of either vector, or elements 2k and 2k + 1 of both together.
          T& one = !kInterleaved    ? low.v[k]
                   : 2 * k < kItems ? low.v[2 * k % kItems]
                                    : high.v[2 * k % kItems];
          T& other = !kInterleaved        ? high.v[k]
                     : 2 * k + 1 < kItems ? low.v[(2 * k + 1) % kItems]
                                          : high.v[(2 * k + 1) % kItems];
          const C a = Load(one), b = Load(other);
          one = Store<T>(Fma(a, cosine[k], -(b * sine[k])));
          other = Store<T>(Fma(b, cosine[k], a * sine[k]));
        }
        store(y + second, high);
      }
      store(y + first, low);
    }
  }
}

}  // namespace opw::rotary

// quantize and dequantize. A group is processed by some lanes of a warp or by a block; long groups
// in chunks, one block each. A thread processes 16 neighbours at a time.
#include "kernels/ops/gpu/chunks.cuh"
#include "kernels/ops/quant/gpu_params.h"

namespace opw::quant {

inline constexpr int kItems = 16;

// Calls f(position, elements of x starting with it, their number) for the group's threads. If there
// are fewer than 16, the others repeat the first.
template <int kLanes, typename T, typename F>
OPW_DEVICE void ForItems(const T* x, i64 n, const F& f) {
  const bool aligned = Aligned<T, kItems>(x);
  for (i64 at = static_cast<i64>(GroupRank<kLanes>()) * kItems; at < n;
       at += static_cast<i64>(GroupSize<kLanes>()) * kItems) {
    const i64 rest = n - at;
    f(at,
      rest >= kItems && aligned ? LoadVector<T, kItems>(x + at) : LoadSome<T, kItems>(x + at, rest),
      rest < kItems ? rest : kItems);
  }
}

template <typename C>
struct Range {
  C least, most;
};
// The range of n elements, for all threads of the group; symmetric: of their magnitudes, the
// largest.
template <typename T, int kLanes, bool kSymmetric>
OPW_DEVICE Range<ComputeOf<T>> RangeOf(const T* x, i64 n) {
  using C = ComputeOf<T>;
  Range<C> r = {Infinity<C>(), kSymmetric ? C(0) : -Infinity<C>()};
  ForItems<kLanes>(x, n, [&](i64, const Vector<T, kItems>& v, i64) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const C e = Load(v.v[k]);
      if (!kSymmetric) r.least = Min()(e, r.least);
      r.most = Max()(kSymmetric ? Abs(e) : e, r.most);
    }
  });
  if (!kSymmetric) r.least = GroupReduce<kLanes>(r.least, Min(), Infinity<C>());
  r.most = GroupReduce<kLanes>(r.most, Max(), kSymmetric ? C(0) : -Infinity<C>());
  return r;
}

// The nearest integer, ties to even, of |v| up to 2^21.
OPW_DEVICE float RoundEven(float v) { return v + 12582912.0f - 12582912.0f; }
OPW_DEVICE double RoundEven(double v) { return v + 6755399441055744.0 - 6755399441055744.0; }

template <int kBits, typename C>
OPW_DEVICE i32 ValueOf(C v) {
  constexpr C kLow = -(1 << (kBits - 1)), kHigh = (1 << (kBits - 1)) - 1;
  if (v != v) return 0;
  return static_cast<i32>(RoundEven(v < kLow ? kLow : v > kHigh ? kHigh : v));
}

template <typename T, int kLanes, int kBits, bool kSymmetric>
OPW_DEVICE void Quantize(const QuantParams& p) {
  using C = ComputeOf<T>;
  const Chunk c = ChunkOf(p.extent, p.chunk);
  ForRows<kLanes>(p.groups, [&](i64 group, bool there) {
    const T* const x = static_cast<const T*>(p.x) + group * p.extent + c.begin;
    Range<C> r;
    if (kLanes == 0 && p.chunks > 1) {
      if (!kSymmetric)
        r.least = JoinChunks(static_cast<const C*>(p.least) + group * p.chunks, p.chunks, Min(),
                             Infinity<C>());
      r.most = JoinChunks(static_cast<const C*>(p.most) + group * p.chunks, p.chunks, Max(),
                          kSymmetric ? C(0) : -Infinity<C>());
    } else {
      r = RangeOf<T, kLanes, kSymmetric>(x, c.size);
    }
    // As exact as max - min, and never beyond the range. An offset is never -0. An empty group has
    // no range.
    const bool none = p.extent == 0;
    const C half = none ? C(0) : kSymmetric ? r.most : r.most / 2 - r.least / 2;
    const C offset = none || kSymmetric ? C(0) : r.most / 2 + r.least / 2 + C(0);
    C factor = static_cast<C>(1 << (kBits - 1)) / half;
    if (factor - factor != 0 && half == half) factor = 1;  // infinite
    if (!there) return;
    u8* const values = static_cast<u8*>(p.values) + (group * p.extent + c.begin) * kBits / 8;
    const bool aligned = Aligned<u8, kItems * kBits / 8>(values);
    ForItems<kLanes>(x, c.size, [&](i64 at, const Vector<T, kItems>& v, i64 count) {
      Vector<u8, kItems * kBits / 8> out;
#pragma unroll
      for (int k = 0; k < kItems * kBits / 8; ++k) {
        if constexpr (kBits == 8)
          out.v[k] = static_cast<u8>(ValueOf<8>((Load(v.v[k]) - offset) * factor));
        else
          out.v[k] =
              static_cast<u8>((ValueOf<4>((Load(v.v[2 * k]) - offset) * factor) & 15) |
                              (ValueOf<4>((Load(v.v[2 * k + 1]) - offset) * factor) & 15) << 4);
      }
      if (count == kItems && aligned)
        StoreVector(values + at * kBits / 8, out);
      else
        StoreSome(values + at * kBits / 8, out, count * kBits / 8);
    });
    if (GroupRank<kLanes>() != 0 || c.begin != 0) return;
    C* const params = static_cast<C*>(p.params) + group * (kSymmetric ? 1 : 2);
    params[0] = 1 / factor;
    if (!kSymmetric) params[1] = offset;
  });
}

// The ranges of chunks.
template <typename T, bool kSymmetric>
OPW_DEVICE void Ranges(const QuantParams& p) {
  using C = ComputeOf<T>;
  const Chunk c = ChunkOf(p.extent, p.chunk);
  ForRows<0>(p.groups, [&](i64 group, bool) {
    const Range<C> r =
        RangeOf<T, 0, kSymmetric>(static_cast<const T*>(p.x) + group * p.extent + c.begin, c.size);
    if (threadIdx.x != 0) return;
    if (!kSymmetric) static_cast<C*>(p.least)[group * p.chunks + blockIdx.y] = r.least;
    static_cast<C*>(p.most)[group * p.chunks + blockIdx.y] = r.most;
  });
}

// Converts to elements of T, with parameters of C.
template <typename T, typename C, int kLanes, int kBits, bool kSymmetric>
OPW_DEVICE void Dequantize(const QuantParams& p) {
  constexpr int kBytes = kItems * kBits / 8;
  const Chunk c = ChunkOf(p.extent, p.chunk);
  ForRows<kLanes>(p.groups, [&](i64 group, bool there) {
    if (!there) return;
    const C* const params = static_cast<const C*>(p.params) + group * (kSymmetric ? 1 : 2);
    const C scale = params[0], offset = kSymmetric ? C(0) : params[1];
    const u8* const values =
        static_cast<const u8*>(p.values) + (group * p.extent + c.begin) * kBits / 8;
    T* const y = static_cast<T*>(p.y) + group * p.extent + c.begin;
    const bool aligned = Aligned<u8, kBytes>(values) && Aligned<T, kItems>(y);
    for (i64 at = static_cast<i64>(GroupRank<kLanes>()) * kItems; at < c.size;
         at += static_cast<i64>(GroupSize<kLanes>()) * kItems) {
      const i64 rest = c.size - at;
      const bool whole = aligned && rest >= kItems;
      const Vector<u8, kBytes> v =
          whole ? LoadVector<u8, kBytes>(values + at * kBits / 8)
                : LoadSome<u8, kBytes>(values + at * kBits / 8, rest * kBits / 8);
      Vector<T, kItems> out;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const i32 value = kBits == 8 ? static_cast<i8>(v.v[k * kBits / 8])
                                     : (v.v[k * kBits / 8] >> k % 2 * 4 & 15 ^ 8) - 8;
        const C product = static_cast<C>(value) * scale;
        out.v[k] = Store<T>(kSymmetric ? product : product + offset);
      }
      if (whole)
        StoreVector(y + at, out);
      else
        StoreSome(y + at, out, rest);
    }
  });
}

}  // namespace opw::quant

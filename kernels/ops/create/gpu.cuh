// Fills, ranges and random values. kernels/ops/create/random.h defines the number of each element.
#include "kernels/ops/create/gpu_params.h"
#include "kernels/ops/gpu/device.cuh"

namespace opw::create {

OPW_DEVICE double Floor(double v) { return floor(v); }
#define OPWIRE_FUNCTION OPW_DEVICE
#include "kernels/ops/create/normal.inc.h"
#undef OPWIRE_FUNCTION

// 16 bytes per thread.
template <typename U>
OPW_DEVICE void Fill(const FillParams& p) {
  constexpr int kItems = 16 / sizeof(U);
  Vector<U, kItems> v;
#pragma unroll
  for (int i = 0; i < kItems; ++i) v.v[i] = static_cast<U>(p.bits);
  U* const y = static_cast<U*>(p.y);
  const bool aligned = Aligned<U, kItems>(y);
  for (i64 at = Index() * kItems; at < p.elements; at += Stride() * kItems) {
    if (aligned && p.elements - at >= kItems)
      StoreVector(y + at, v);
    else
      StoreSome(y + at, v, p.elements - at);
  }
}

// Floats below f64 in f64, so that the only rounding is the last.
template <typename T>
OPW_DEVICE void Arange(const ArangeParams& p) {
  const auto start = Load(*static_cast<const T*>(p.start)),
             step = Load(*static_cast<const T*>(p.step));
  for (i64 i = Index(); i < p.elements; i += Stride()) {
    if constexpr (kIsFloat<ComputeOf<T>>) {
      static_cast<T*>(p.y)[i] =
          Store<T>(static_cast<double>(start) + static_cast<double>(i) * static_cast<double>(step));
    } else {
      static_cast<T*>(p.y)[i] =
          static_cast<T>(static_cast<u64>(start) + static_cast<u64>(i) * static_cast<u64>(step));
    }
  }
}

struct Key {
  u64 key, high;
};
OPW_DEVICE Key KeyOf(const RandomParams& p) {
  const u64* const key = static_cast<const u64*>(p.key);
  return {key[0], key[1] + static_cast<u64>(p.site)};
}

// Philox 4x32-10 of one counter.
OPW_DEVICE void Philox(const Key& key, u64 counter, u32 (&lanes)[4]) {
  lanes[0] = static_cast<u32>(counter), lanes[1] = static_cast<u32>(counter >> 32);
  lanes[2] = static_cast<u32>(key.high), lanes[3] = static_cast<u32>(key.high >> 32);
  u32 k0 = static_cast<u32>(key.key), k1 = static_cast<u32>(key.key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const u64 p0 = static_cast<u64>(0xD2511F53u) * lanes[0],
              p1 = static_cast<u64>(0xCD9E8D57u) * lanes[2];
    lanes[0] = static_cast<u32>(p1 >> 32) ^ lanes[1] ^ k0;
    lanes[1] = static_cast<u32>(p1);
    lanes[2] = static_cast<u32>(p0 >> 32) ^ lanes[3] ^ k1;
    lanes[3] = static_cast<u32>(p0);
  }
}

// A thread's elements have one counter: 4 of f32, 2 of f64.
template <typename C>
inline constexpr int kGroup = kSame<C, double> ? 2 : 4;

template <typename C>
OPW_DEVICE void Uniforms(const Key& key, i64 group, C (&u)[kGroup<C>]) {
  u32 lanes[4];
  Philox(key, static_cast<u64>(group), lanes);
#pragma unroll
  for (int i = 0; i < kGroup<C>; ++i) {
    if constexpr (kSame<C, double>) {
      u[i] = static_cast<double>((static_cast<u64>(lanes[2 * i]) << 32 | lanes[2 * i + 1]) >> 11) *
             0x1p-53;
    } else {
      u[i] = static_cast<float>(lanes[i] >> 8) * 0x1p-24f;
    }
  }
}

template <typename C>
OPW_DEVICE void Normals(const Key& key, i64 group, C (&z)[kGroup<C>]) {
  C u[kGroup<C>];
  Uniforms(key, group, u);
#pragma unroll
  for (int i = 0; i < kGroup<C>; i += 2) {
    const double r = Sqrt(-2.0 * Log(1.0 - static_cast<double>(u[i])));
    double cosine, sine;
    CosSin(static_cast<double>(u[i + 1]), &cosine, &sine);
    z[i] = static_cast<C>(r * cosine);
    z[i + 1] = static_cast<C>(r * sine);
  }
}

template <typename T, bool kNormal>
OPW_DEVICE void Random(const RandomParams& p) {
  using C = ComputeOf<T>;
  constexpr int kEach = kGroup<C>;
  const Key key = KeyOf(p);
  const C a = Load(*static_cast<const T*>(p.a)), b = Load(*static_cast<const T*>(p.b));
  T* const y = static_cast<T*>(p.y);
  for (i64 group = Index(); group * kEach < p.elements; group += Stride()) {
    C r[kEach];
    if constexpr (kNormal)
      Normals(key, group, r);
    else
      Uniforms(key, group, r);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (group * kEach + i < p.elements)
        y[group * kEach + i] = Store<T>(kNormal ? a + b * r[i] : a + r[i] * (b - a));
    }
  }
}

template <typename T>
OPW_DEVICE void Dropout(const RandomParams& p) {
  using C = ComputeOf<T>;
  constexpr int kEach = kGroup<C>;
  const Key key = KeyOf(p);
  const C drop = static_cast<C>(*static_cast<const float*>(p.b)), keep = C(1) - drop;
  const T* const x = static_cast<const T*>(p.a);
  T* const y = static_cast<T*>(p.y);
  for (i64 group = Index(); group * kEach < p.elements; group += Stride()) {
    C u[kEach];
    Uniforms(key, group, u);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const i64 at = group * kEach + i;
      if (at < p.elements) y[at] = Store<T>(u[i] >= drop ? Load(x[at]) / keep : C(0));
    }
  }
}

}  // namespace opw::create

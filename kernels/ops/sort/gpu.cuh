// sort, argsort and topk. Slices that fit a block's memory are sorted there by a bitonic network.
// Longer ones by radix, eight bits at a time from the lowest on: tiles count their digits, the
// counts are summed, and tiles move their pairs of key and place. The first few of a long slice are
// found by the highest digits first, taken out in their order, and then sorted as a short slice.
// All sums are of integers, so every run gives the same.
#include "kernels/ops/gpu/scan.cuh"
#include "kernels/ops/sort/gpu_params.h"

namespace opw::sort {

inline constexpr int kThreads = 256;
inline constexpr int kShort = 2048;  // the longest slice that a block sorts in its memory

// ---- Keys: unsigned integers in the order of the elements; zeros of both signs have one, and NaN
// the largest

template <typename T>
inline constexpr u64 kInfinityBits = 0;
template <>
inline constexpr u64 kInfinityBits<f64> = 0x7ff0000000000000ull;
template <>
inline constexpr u64 kInfinityBits<f32> = 0x7f800000u;
template <>
inline constexpr u64 kInfinityBits<f16> = 0x7c00;
template <>
inline constexpr u64 kInfinityBits<bf16> = 0x7f80;

template <typename T>
OPW_DEVICE RawOf<T> KeyOf(T v) {
  using K = RawOf<T>;
  constexpr K kTop = static_cast<K>(K(1) << (sizeof(K) * 8 - 1)),
              kInfinity = static_cast<K>(kInfinityBits<T>);
  K bits;
  memcpy(&bits, &v, sizeof(T));
  if constexpr (kSame<T, boolean>) {
    return bits != 0;
  } else if constexpr (kInfinity != 0) {
    const K magnitude = static_cast<K>(bits & static_cast<K>(~kTop));
    if (magnitude > kInfinity) return static_cast<K>(~K(0));
    if (magnitude == 0) return kTop;
    return static_cast<K>(bits ^ ((bits & kTop) != 0 ? static_cast<K>(~K(0)) : kTop));
  } else {
    return kIsSigned<T> ? static_cast<K>(bits ^ kTop) : bits;
  }
}
// Returns the element of a key. If a key represents several, as for zeros and NaN, the element is
// read at `from`.
template <typename T>
OPW_DEVICE T ElementOf(RawOf<T> key, const T* from) {
  using K = RawOf<T>;
  constexpr K kTop = static_cast<K>(K(1) << (sizeof(K) * 8 - 1));
  K bits = key;
  if constexpr (kSame<T, boolean>) {
    return *from;
  } else if constexpr (kInfinityBits<T> != 0) {
    if (key == kTop || key == static_cast<K>(~K(0))) return *from;
    bits = static_cast<K>(key ^ ((key & kTop) != 0 ? kTop : static_cast<K>(~K(0))));
  } else if constexpr (kIsSigned<T>) {
    bits = static_cast<K>(key ^ kTop);
  }
  T out;
  memcpy(&out, &bits, sizeof(T));
  return out;
}

// Element i of slice s of a tensor [.., extent, inner].
OPW_DEVICE i64 At(const SortParams& p, i64 slice, i64 extent, i64 i) {
  if (p.inner == 1) return slice * extent + i;
  const i64 outer = slice / p.inner;
  return (outer * extent + i) * p.inner + (slice - outer * p.inner);
}

template <typename T>
OPW_DEVICE void WriteResult(const SortParams& p, i64 slice, i64 to, RawOf<T> key, i64 place) {
  const i64 at = At(p, slice, p.limit, to);
  static_cast<i64*>(p.indices)[at] = place;
  if (p.values == nullptr) return;
  static_cast<T*>(p.values)[at] =
      ElementOf<T>(static_cast<RawOf<T>>(key ^ static_cast<RawOf<T>>(p.flip)),
                   static_cast<const T*>(p.x) + At(p, slice, p.x_extent, place));
}

// ---- Short slices: p.items places of memory hold p.items / p.width of them. kPairs: they are
// pairs, whose order among equal keys is that of their places.

template <typename T, typename I, bool kPairs>
OPW_DEVICE void SortShort(const SortParams& p) {
  using K = RawOf<T>;
  __shared__ K keys[kShort];
  __shared__ u16 places[kShort];
  const int at_once = p.items / p.width, extent = static_cast<int>(p.extent);
  for (i64 first = static_cast<i64>(blockIdx.x) * at_once; first < p.slices;
       first += static_cast<i64>(gridDim.x) * at_once) {
    __syncthreads();  // of the slices before some are still written
    const int here = first + at_once <= p.slices ? at_once : static_cast<int>(p.slices - first);
    // Neighbouring threads read neighbouring elements: of one slice, or of several slices if the
    // elements of one are not contiguous.
    const bool across = p.inner > 1 && !kPairs;
    for (int i = static_cast<int>(threadIdx.x); i < p.items; i += kThreads) {
      const int slice = across ? i % at_once : i / p.width,
                place = across ? i / at_once : i % p.width;
      K key = static_cast<K>(~K(0));
      if (slice < here && place < extent) {
        if constexpr (kPairs)
          key = static_cast<const K*>(p.keys)[(first + slice) * p.extent + place];
        else
          key = static_cast<K>(
              KeyOf(static_cast<const T*>(p.x)[At(p, first + slice, p.extent, place)]) ^
              static_cast<K>(p.flip));
      }
      keys[slice * p.width + place] = key;
      places[slice * p.width + place] = static_cast<u16>(place);
    }
    __syncthreads();
    for (int size = 2; size <= p.width; size *= 2) {
      for (int by = size / 2; by > 0; by /= 2) {
        for (int i = static_cast<int>(threadIdx.x); i < p.items / 2; i += kThreads) {
          const int low = 2 * i - (i & (by - 1)), high = low + by;
          const bool up = (low & (p.width - 1) & size) == 0;
          const K a = keys[low], b = keys[high];
          const u16 place_a = places[low], place_b = places[high];
          if ((a < b || (a == b && place_a < place_b)) != up) {
            keys[low] = b, keys[high] = a;
            places[low] = place_b, places[high] = place_a;
          }
        }
        __syncthreads();
      }
    }
    const int limit = static_cast<int>(p.limit);
    for (int i = static_cast<int>(threadIdx.x); i < at_once * limit; i += kThreads) {
      const int slice = p.inner > 1 ? i % at_once : i / limit,
                to = p.inner > 1 ? i / at_once : i % limit;
      if (slice >= here) continue;
      const int place = places[slice * p.width + to];
      const i64 from = kPairs ? static_cast<i64>(static_cast<const I*>(
                                    p.places)[(first + slice) * p.extent + place])
                              : place;
      WriteResult<T>(p, first + slice, to, keys[slice * p.width + to], from);
    }
  }
}

// ---- Long slices: tiles of them, a block each

// Elements a thread has of a tile.
template <typename K, typename I>
inline constexpr int kEach = sizeof(K) == 8 || sizeof(I) == 8 ? 8 : 16;

struct Tile {
  i64 slice, tile, begin;
  int size;
};
template <int kElements>
OPW_DEVICE Tile TileOf(const SortParams& p) {
  Tile t;
  t.slice = blockIdx.x / p.tiles;
  t.tile = blockIdx.x - t.slice * p.tiles;
  t.begin = t.tile * kElements;
  t.size = p.extent - t.begin < kElements ? static_cast<int>(p.extent - t.begin) : kElements;
  return t;
}

// The key at position `at` of a slice; kFirst: made of its element.
template <typename T, bool kFirst>
OPW_DEVICE RawOf<T> ReadKey(const SortParams& p, i64 slice, i64 at) {
  using K = RawOf<T>;
  if constexpr (kFirst)
    return static_cast<K>(KeyOf(static_cast<const T*>(p.x)[At(p, slice, p.extent, at)]) ^
                          static_cast<K>(p.flip));
  else
    return static_cast<const K*>(p.keys)[slice * p.extent + at];
}

// With 256 digits that of a key at p.shift. With two, 0 for keys below the one that was picked, 1
// for those equal to it; others are left out: -1.
template <int kDigits, typename K>
OPW_DEVICE int DigitOf(const SortParams& p, K key, K picked) {
  if constexpr (kDigits == 256)
    return static_cast<int>(key >> p.shift & 255);
  else
    return key < picked ? 0 : key == picked ? 1 : -1;
}
template <int kDigits, typename K>
OPW_DEVICE K PickedOf(const SortParams& p, i64 slice) {
  if constexpr (kDigits == 256)
    return 0;
  else
    return static_cast<K>(static_cast<const Pick*>(p.picks)[slice].key);
}

template <typename T, typename I, bool kFirst, int kDigits>
OPW_DEVICE void CountDigits(const SortParams& p) {
  using K = RawOf<T>;
  __shared__ u32 bins[kDigits];
  const Tile t = TileOf<kThreads * kEach<K, I>>(p);
  const K picked = PickedOf<kDigits, K>(p, t.slice);
  if (threadIdx.x < kDigits) bins[threadIdx.x] = 0;
  __syncthreads();
  u32 own[2] = {0, 0};
  for (int i = static_cast<int>(threadIdx.x); i < t.size; i += kThreads) {
    const int digit = DigitOf<kDigits>(p, ReadKey<T, kFirst>(p, t.slice, t.begin + i), picked);
    if constexpr (kDigits == 256)
      atomicAdd(&bins[digit], 1u);
    else
      own[0] += digit == 0, own[1] += digit == 1;
  }
  if constexpr (kDigits == 2) {
    if (own[0] != 0) atomicAdd(&bins[0], own[0]);
    if (own[1] != 0) atomicAdd(&bins[1], own[1]);
  }
  __syncthreads();
  if (threadIdx.x < kDigits)
    static_cast<I*>(p.counts)[(t.slice * kDigits + threadIdx.x) * p.tiles + t.tile] =
        bins[threadIdx.x];
}

// Counts of a slice become the sums of those before each; a block a slice.
template <typename I, int kDigits>
OPW_DEVICE void SumCounts(const SortParams& p) {
  constexpr int kBatch = 8;
  I* const counts = static_cast<I*>(p.counts) + blockIdx.x * p.tiles * kDigits;
  const i64 n = p.tiles * kDigits;
  I carry = 0;
  for (i64 base = 0; base < n; base += static_cast<i64>(blockDim.x) * kBatch) {
    const i64 at = base + static_cast<i64>(threadIdx.x) * kBatch;
    I v[kBatch], sum = 0, all;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) v[k] = at + k < n ? counts[at + k] : I(0);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sum += v[k];
    I before = carry + SumBefore<0>(sum, all);
    carry += all;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (at + k < n) counts[at + k] = before;
      before += v[k];
    }
  }
}

// Moves a tile's pairs to where the sums say; those of equal digits stay in their order. kLast: to
// the results.
template <typename T, typename I, bool kFirst, bool kLast, int kDigits>
OPW_DEVICE void MovePairs(const SortParams& p) {
  using K = RawOf<T>;
  constexpr int kItems = kEach<K, I>, kWarps = kThreads / OPW_WARP, kBits = kDigits == 256 ? 8 : 1;
  __shared__ K keys[kThreads * kItems];
  __shared__ I places[kThreads * kItems];
  __shared__ u32 counts[kWarps][kDigits];  // of a warp's digits, then the position in the tile of
                                           // its first element with each digit
  __shared__ I bases[kDigits];             // added to a place in the tile: the place in the slice
  const Tile t = TileOf<kThreads * kItems>(p);
  const K picked = PickedOf<kDigits, K>(p, t.slice);
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * kDigits; i += kThreads)
    counts[i / kDigits][i % kDigits] = 0;
  __syncthreads();
  const int first = Warp() * OPW_WARP * kItems + Lane();
  K own[kItems];
  u16 ranks[kItems];  // among the warp's of its digit
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = first + k * OPW_WARP;
    int digit = -1;
    if (at < t.size) {
      own[k] = ReadKey<T, kFirst>(p, t.slice, t.begin + at);
      digit = DigitOf<kDigits>(p, own[k], picked);
    }
    ranks[k] = static_cast<u16>(CountInOrder<kBits>(counts[Warp()], digit));
  }
  __syncthreads();
  u32 total = 0, kept;
  if (threadIdx.x < kDigits) {
    for (int w = 0; w < kWarps; ++w) total += counts[w][threadIdx.x];
  }
  u32 start = SumBefore<0>(total, kept);
  if (threadIdx.x < kDigits) {
    bases[threadIdx.x] =
        static_cast<const I*>(p.counts)[(t.slice * kDigits + threadIdx.x) * p.tiles + t.tile] -
        static_cast<I>(start);
    for (int w = 0; w < kWarps; ++w) {
      const u32 n = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = start;
      start += n;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = first + k * OPW_WARP;
    if (at >= t.size) continue;
    const int digit = DigitOf<kDigits>(p, own[k], picked);
    if (digit < 0) continue;
    const u32 to = counts[Warp()][digit] + ranks[k];
    keys[to] = own[k];
    if constexpr (kFirst)
      places[to] = static_cast<I>(t.begin + at);
    else
      places[to] = static_cast<const I*>(p.places)[t.slice * p.extent + t.begin + at];
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < kept; i += kThreads) {
    const K key = keys[i];
    const i64 to = static_cast<i64>(
        static_cast<I>(bases[DigitOf<kDigits>(p, key, picked)] + static_cast<I>(i)));
    if (to >= p.limit) continue;
    if constexpr (kLast) {
      WriteResult<T>(p, t.slice, to, key, static_cast<i64>(places[i]));
    } else {
      static_cast<K*>(p.to_keys)[t.slice * p.limit + to] = key;
      static_cast<I*>(p.to_places)[t.slice * p.limit + to] = places[i];
    }
  }
}

// ---- Selection: for each digit from the highest on its counts, and which of them holds the key
// that is looked for

// Of elements; p.counts has a slice's 256 counts.
template <typename T>
OPW_DEVICE void CountMatching(const SortParams& p) {
  using K = RawOf<T>;
  constexpr int kElements = kThreads * 64;
  __shared__ u32 bins[256];
  const Tile t = TileOf<kElements>(p);
  const int above = p.shift + 8;
  const bool all = above == sizeof(K) * 8;
  const u64 found = all ? 0 : static_cast<const Pick*>(p.picks)[t.slice].key >> above;
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < t.size; i += kThreads) {
    const u64 key = ReadKey<T, true>(p, t.slice, t.begin + i);
    if (all || key >> above == found) atomicAdd(&bins[key >> p.shift & 255], 1u);
  }
  __syncthreads();
  if (bins[threadIdx.x] != 0)
    atomicAdd(static_cast<u64*>(p.counts) + t.slice * 256 + threadIdx.x,
              static_cast<u64>(bins[threadIdx.x]));
}

// A block a slice. Leaves the counts at 0.
template <bool kFirst>
OPW_DEVICE void PickDigit(const PickParams& p) {
  Pick* const pick = static_cast<Pick*>(p.picks) + blockIdx.x;
  u64* const bin = static_cast<u64*>(p.bins) + static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  const u64 key = kFirst ? 0 : pick->key, rank = kFirst ? static_cast<u64>(p.wanted) : pick->rank;
  const u64 n = *bin;
  u64 all;
  const u64 before = SumBefore<0>(n, all);
  *bin = 0;
  if (before < rank && rank <= before + n)
    *pick = {key | static_cast<u64>(threadIdx.x) << p.shift, rank - before};
}

}  // namespace opw::sort

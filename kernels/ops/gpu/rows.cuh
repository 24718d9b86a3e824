// Rows of dense tensors: the threads of a row, a row's aligned middle and its edges, and rows that
// are held in registers or shared memory.
#include "kernels/ops/gpu/device.cuh"

namespace opw {

template <typename C>
OPW_DEVICE C Infinity() {
  return static_cast<C>(FloatOf(0x7f800000u));
}

// The value to subtract as maximum: if all elements are -inf, exp of the difference is 0, not NaN.
template <typename C>
OPW_DEVICE C FiniteOrZero(C most) {
  return most == -Infinity<C>() ? C(0) : most;
}

// exp for results of type T. For 16-bit types by 2^(v log2 e), off by 1.2 |v| 2^-24 + 2 ulp of f32,
// which rounding to 2^-9 or 2^-12 hides.
template <typename T>
OPW_DEVICE ComputeOf<T> ExpFor(ComputeOf<T> v) {
  if constexpr (kIsNarrow<T>)
    return Exp2Fast(v * 1.44269504f);
  else
    return Exp(v);
}
// Quotients and 1 / sqrt for results of type T. For 16-bit types off by 4 ulp of f32, as all
// threads of a row wait for them.
template <typename T>
OPW_DEVICE ComputeOf<T> QuotientFor(ComputeOf<T> a, ComputeOf<T> b) {
  if constexpr (kIsNarrow<T>)
    return a * RecipFast(b);
  else
    return a / b;
}
template <typename T>
OPW_DEVICE ComputeOf<T> InverseSqrtFor(ComputeOf<T> v) {
  if constexpr (kIsNarrow<T>)
    return InverseSqrtFast(v);
  else
    return 1 / Sqrt(v);
}

// ---- Groups. The threads of a row are kLanes neighbours of a warp (a power of two up to 32). With
// 0 they are the whole block, with -n a cluster of n blocks

template <int kLanes>
inline constexpr bool kIsCluster = kLanes < 0;

template <int kLanes>
OPW_DEVICE int GroupRank() {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kIsCluster<kLanes>)
    return static_cast<int>(blockIdx.x) % -kLanes * static_cast<int>(blockDim.x) + thread;
  else if constexpr (kLanes == 0)
    return thread;
  else
    return thread % kLanes;
}
template <int kLanes>
OPW_DEVICE int GroupSize() {
  if constexpr (kLanes > 0)
    return kLanes;
  else
    return static_cast<int>(blockDim.x) * (kIsCluster<kLanes> ? -kLanes : 1);
}

// Every thread of the group gets the same bits. All threads of the block, or cluster, take part,
// and have loaded a row (OnChip::Load). Each instance has its own memory for the values that blocks
// of a cluster exchange. So if two calls for one row have equal template arguments, the second
// needs another kTurn: a block may write for it while others still read.
template <int kLanes, int kTurn = 0, typename V, typename Op>
OPW_DEVICE V GroupReduce(V v, Op op, V identity) {
  if constexpr (kLanes == 0) {
    return BlockReduce(v, op, identity);
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  } else if constexpr (kIsCluster<kLanes>) {
    // Each warp writes its value into every block, so one barrier suffices.
    constexpr int kBlocks = -kLanes;
    __shared__ V parts[kBlocks * 512 / OPW_WARP];
    const int warps = static_cast<int>(blockDim.x) / OPW_WARP,
              own = static_cast<int>(blockIdx.x) % kBlocks * warps + Warp();
    v = WarpReduce(v, op);
    if (Lane() < kBlocks) *InBlock(&parts[own], Lane()) = v;
    ClusterBarrier();
    V all = identity;
    for (int part = Lane(); part < kBlocks * warps; part += OPW_WARP) all = op(all, parts[part]);
    return WarpReduce(all, op);
#endif
  } else {
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) v = op(v, ShuffleXor(v, mask));
    return ShuffleFrom(v, Lane() / kLanes * kLanes);
  }
}

// Joins the values of warps; every thread of a block or a cluster gets the result. All lanes of a
// warp have equal values. pool(v) reduces a warp's lanes, and `op` joins two values. Otherwise like
// GroupReduce, but each warp has its own part, and the row has one barrier.
template <int kLanes, typename V, typename Pool, typename Op>
OPW_DEVICE V JoinWarps(V own, const Pool& pool, Op op, V identity) {
  const int warps = static_cast<int>(blockDim.x) / OPW_WARP;
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kIsCluster<kLanes>) {
    constexpr int kBlocks = -kLanes;
    __shared__ V parts[kBlocks * 512 / OPW_WARP];
    if (Lane() < kBlocks)
      *InBlock(&parts[static_cast<int>(blockIdx.x) % kBlocks * warps + Warp()], Lane()) = own;
    ClusterBarrier();
    V all = identity;
    if (Lane() < kBlocks * warps) all = parts[Lane()];
    for (int part = Lane() + OPW_WARP; part < kBlocks * warps; part += OPW_WARP)
      all = op(all, parts[part]);
    return pool(all);
  }
#endif
  __shared__ V parts[1024 / OPW_WARP];
  __syncthreads();  // the previous row may still be read
  if (Lane() == 0) parts[Warp()] = own;
  __syncthreads();
  V all = identity;
  if (Lane() < warps) all = parts[Lane()];
  return pool(all);
}

// Calls body(row, there) for the group's rows. All groups of a warp call it together. If `there` is
// false the row belongs to another group, and nothing of it may be written.
template <int kLanes, typename F>
OPW_DEVICE void ForRows(i64 rows, const F& body) {
  if constexpr (kLanes <= 0) {
    constexpr int kBlocks = kIsCluster<kLanes> ? -kLanes : 1;
    for (i64 row = blockIdx.x / kBlocks; row < rows; row += gridDim.x / kBlocks) body(row, true);
  } else {
    const i64 at_once = static_cast<i64>(gridDim.x) * (blockDim.x / kLanes);
    const i64 first =
        static_cast<i64>(blockIdx.x) * (blockDim.x / kLanes) + Warp() * (OPW_WARP / kLanes);
    for (i64 base = first; base < rows; base += at_once) {
      const i64 row = base + Lane() / kLanes;
      body(row < rows ? row : rows - 1, row < rows);
    }
  }
}

// ---- Spans: elements before the first 16-byte boundary, vectors, and the remaining elements

template <typename T>
inline constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));

template <typename T>
struct Span {
  int head, tail;  // elements
  i64 body;        // vectors
  // The position of edge element e < head + tail, and of a vector's first element.
  OPW_DEVICE i64 Edge(i64 e) const { return e < head ? e : body * kPerVector<T> + e; }
  OPW_DEVICE i64 At(i64 vector) const { return head + vector * kPerVector<T>; }
};
// kWhole: the row has only aligned vectors and no edges, as its caller knows. kTrimmed: the first
// and the last vector belong to the edges, so that there are elements around each vector.
enum class Ends { kWhole, kEdged, kTrimmed };
// kTrim: as Ends::kTrimmed.
template <bool kTrim = false, typename T>
OPW_DEVICE Span<T> SpanOf(const T* p, i64 n) {
  const int before = ((16 - Phase(p)) & 15) / static_cast<int>(sizeof(T));
  Span<T> s;
  s.head = before < n ? before : static_cast<int>(n);
  s.body = (n - s.head) / kPerVector<T>;
  s.tail = static_cast<int>(n - s.head - s.body * kPerVector<T>);
  if (kTrim && s.body > 0) {
    s.head += kPerVector<T>;
    if (--s.body > 0) {
      s.tail += kPerVector<T>;
      --s.body;
    }
  }
  return s;
}

// Elements, 16 bytes by default, in whole registers whatever their size. In an array of narrow
// elements compilers keep each in a separate register.
template <typename T, int kItems = kPerVector<T>>
struct Wide {
  u32 words[(kItems * sizeof(T) + 3) / 4];
  // `k` is a constant after loops are unrolled.
  OPW_DEVICE T Get(int k) const {
    if constexpr (sizeof(T) == 8) {
      const u64 bits = words[k * 2] | static_cast<u64>(words[k * 2 + 1]) << 32;
      T out;
      memcpy(&out, &bits, 8);
      return out;
    } else {
      const auto bits = static_cast<RawOf<T>>(words[k * static_cast<int>(sizeof(T)) / 4] >>
                                              (k * sizeof(T) % 4 * 8));
      T out;
      memcpy(&out, &bits, sizeof(T));
      return out;
    }
  }
};
// Returns the same elements, hidden from the compiler. So it does not keep what it computed of them
// before, such as floats in twice as many registers.
template <typename T>
OPW_DEVICE Wide<T> Anew(const Wide<T>& v) {
  return {{Opaque(v.words[0]), Opaque(v.words[1]), Opaque(v.words[2]), Opaque(v.words[3])}};
}
// `p` is aligned to 16.
template <typename T>
OPW_DEVICE Wide<T> LoadAligned(const T* p) {
  const Quad q = *reinterpret_cast<const Quad*>(p);
  return {{q.x, q.y, q.z, q.w}};
}

// `v` rounded to elements.
template <typename T>
OPW_DEVICE Wide<T> RoundAll(const ComputeOf<T> (&v)[kPerVector<T>]) {
  Wide<T> out;
  if constexpr (kSame<T, bf16> || kSame<T, f16>) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out.words[i] = RoundPair<T>(v[2 * i], v[2 * i + 1]);
  } else {
    static_assert(kSame<T, ComputeOf<T>>);
    memcpy(out.words, v, 16);
  }
  return out;
}

// Stores to any address. `aligned`: the address is aligned for vectors.
template <typename T>
OPW_DEVICE void StoreWide(T* p, const Wide<T>& v, bool aligned) {
  if (aligned) {
    StoreWhole(p, {v.words[0], v.words[1], v.words[2], v.words[3]});
  } else {
#pragma unroll
    for (int i = 0; i < kPerVector<T>; ++i) p[i] = v.Get(i);
  }
}
// Loads from any address that has a vector's elements on either side of it: the two aligned vectors
// around it, shifted.
template <typename T>
OPW_DEVICE Wide<T> LoadShifted(const T* p) {
  const int phase = Phase(p);
  const T* const low = p - phase / static_cast<int>(sizeof(T));
  const Wide<T> first = LoadAligned(low), second = LoadAligned(low + kPerVector<T>);
  u32 by_two[6], by_one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i)
    by_two[i] = (phase & 8) != 0 ? (i < 2 ? first.words[i + 2] : second.words[i - 2])
                                 : (i < 4 ? first.words[i] : second.words[i - 4]);
#pragma unroll
  for (int i = 0; i < 5; ++i) by_one[i] = (phase & 4) != 0 ? by_two[i + 1] : by_two[i];
  Wide<T> out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) >= 4)
      out.words[i] = by_one[i];
    else
      out.words[i] =
          static_cast<u32>((static_cast<u64>(by_one[i + 1]) << 32 | by_one[i]) >> (phase % 4 * 8));
  }
  return out;
}

// By LoadShifted, or directly if the address is aligned.
template <bool kShifted, typename T>
OPW_DEVICE Wide<T> LoadNear(const T* p) {
  if constexpr (kShifted)
    return LoadShifted(p);
  else
    return LoadAligned(p);
}
// map(element, other) of each pair of elements, rounded.
template <typename T, typename F>
OPW_DEVICE Wide<T> MapPairs(const Wide<T>& v, const Wide<T>& other, const F& map) {
  ComputeOf<T> out[kPerVector<T>];
#pragma unroll
  for (int k = 0; k < kPerVector<T>; ++k) out[k] = map(Load(v.Get(k)), Load(other.Get(k)));
  return RoundAll<T>(out);
}

// Extra values of maps that only use elements: none.
struct NothingBeside {
  OPW_DEVICE int Get(int) const { return 0; }
};

// The common begin and end of OnChip::Load and Held::Load: sets the row's vectors and edges. In
// clusters there is a barrier around `load`.
template <int kLanes, Ends kEnds, typename Row, typename T, typename F>
OPW_DEVICE void LoadFramed(Row& row, const T* p, int n, const F& load) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kIsCluster<kLanes>) ClusterArrive();
#endif
  if constexpr (kEnds == Ends::kWhole) {
    row.head = row.edge_count = row.phase = 0;
    row.body = n / kPerVector<T>;
  } else {
    const Span<T> s = SpanOf<kEnds == Ends::kTrimmed>(p, n);
    row.head = s.head;
    row.edge_count = s.head + s.tail;
    row.body = static_cast<int>(s.body);
    row.phase = Phase(p);
  }
  load();
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  if constexpr (kIsCluster<kLanes>) ClusterWait();
#endif
}

// The number of elements that the warp has of a row held by a block or a cluster.
template <int kLanes, typename Row>
OPW_DEVICE int CountOfWarp(const Row& row) {
  const int before = GroupRank<kLanes>() - Lane(), turns = row.body / GroupSize<kLanes>();
  const auto here = [&](int n) {
    return n < before ? 0 : n - before < OPW_WARP ? n - before : OPW_WARP;
  };
  return (turns * OPW_WARP + here(row.body - turns * GroupSize<kLanes>())) * Row::kWidth +
         here(row.edge_count);
}

// ---- A row in the registers of its group: at most kVectors vectors per thread, and the edges

template <typename T, int kLanes, int kVectors, Ends kEnds = Ends::kEdged>
struct OnChip {
  using C = ComputeOf<T>;
  static constexpr int kWidth = kPerVector<T>;
  static constexpr bool kTrim = kEnds == Ends::kTrimmed;
  static constexpr int kMostEdges = 2 * (kTrim ? 2 * kWidth - 1 : kWidth - 1);
  static constexpr int kEdges =
      kLanes <= 0 ? 1 : (kMostEdges + kLanes - 1) / (kLanes <= 0 ? 1 : kLanes);
  Wide<T> vectors[kVectors];
  T edges[kEdges];
  int head, edge_count, body;
  int phase;

  // REQUIRES: n / kWidth <= kVectors * GroupSize(); a block has at least 32 threads, and a width
  // has at most 8 elements. In clusters, afterwards all blocks are running, and have read the
  // values that others sent for the previous row.
  OPW_DEVICE void Load(const T* p, int n) {
    LoadFramed<kLanes, kEnds>(*this, p, n, [&] { Fetch(p); });
  }
  // Loads the row at `p`, which has the length and the alignment of `row`. Not for clusters.
  OPW_DEVICE void LoadAlike(const OnChip& row, const T* p) {
    static_assert(!kIsCluster<kLanes>);
    Frame(row);
    Fetch(p);
  }
  // Loads the row at `p` into the places of the elements of `row`, which is loaded. Unless trimmed,
  // `p` has the alignment of that row.
  OPW_DEVICE void LoadLike(const OnChip& row, const T* p) {
    Frame(row);
    Places([&](int i, int at) { vectors[i] = LoadNear<kTrim>(p + at); },
           [&](int i, int at) { edges[i] = p[at]; });
  }
  // Calls vector(i, position of its first element) for the thread's vectors, and edge(i, position)
  // for its edge elements.
  template <typename VectorF, typename EdgeF>
  OPW_DEVICE void Places(const VectorF& vector, const EdgeF& edge) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Vector(i) < body) vector(i, head + Vector(i) * kWidth);
    }
#pragma unroll
    for (int i = 0; i < kEdges; ++i) {
      if (HasEdge(i)) edge(i, EdgeAt(i));
    }
  }
  template <typename F>
  OPW_DEVICE void Places(const F& vector) const {
    Places(vector, [](int, int) {});
  }
  // As Held::Await.
  OPW_DEVICE void Await() const {}
  // Call between two passes over the row.
  OPW_DEVICE void Forget() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = Anew(vectors[i]);
  }
  // Each element becomes map(it, the element of `other` at its position), rounded, and is also
  // stored at its position of `into`. Unless trimmed, `other` has the row's alignment.
  template <typename F>
  OPW_DEVICE void Merge(const T* other, T* into, const F& map) {
    constexpr int kBatch =
        kTrim || kVectors < 2 ? 1 : 2;  // loads before stores, as the compiler moves no load across
                                        // a store; more would need registers
    const bool aligned = Phase(into) == phase;
    // Opaque: positions are computed again, and not kept between loading and storing the row.
    const int own = static_cast<int>(Opaque(static_cast<u32>(head + GroupRank<kLanes>() * kWidth))),
              step = GroupSize<kLanes>() * kWidth;
#pragma unroll
    for (int first = 0; first < kVectors; first += kBatch) {
      Wide<T> others[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (Vector(first + b) < body) others[b] = LoadNear<kTrim>(other + own + (first + b) * step);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (Vector(first + b) < body) {
          vectors[first + b] = MapPairs(vectors[first + b], others[b], map);
          StoreWide(into + own + (first + b) * step, vectors[first + b], aligned);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kEdges; ++i) {
      if (HasEdge(i))
        into[EdgeAt(i)] = edges[i] =
            opw::Store<T>(map(opw::Load(edges[i]), opw::Load(other[EdgeAt(i)])));
    }
  }
  // Calls f(value) for the thread's elements.
  template <typename F>
  OPW_DEVICE void Each(const F& f) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Vector(i) < body) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) f(opw::Load(vectors[i].Get(k)));
      }
    }
#pragma unroll
    for (int i = 0; i < kEdges; ++i) {
      if (HasEdge(i)) f(opw::Load(edges[i]));
    }
  }
  // Stores map(value, position, extra of its position) at each position of y. extras(i, position)
  // returns the extra values for the thread's vector i, starting with that position.
  // extra(position) returns the one for one element.
  template <typename Extras, typename Extra, typename F>
  OPW_DEVICE void StoreWith(T* y, const Extras& extras, const Extra& extra, const F& map) const {
    const bool aligned = Phase(y) == phase;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Vector(i) < body) {
        const int at = head + Vector(i) * kWidth;
        const auto beside = extras(i, at);
        C out[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
          out[k] = map(opw::Load(vectors[i].Get(k)), at + k, beside.Get(k));
        StoreWide(y + at, RoundAll<T>(out), aligned);
      }
    }
#pragma unroll
    for (int i = 0; i < kEdges; ++i) {
      if (HasEdge(i))
        y[EdgeAt(i)] = opw::Store<T>(map(opw::Load(edges[i]), EdgeAt(i), extra(EdgeAt(i))));
    }
  }
  // Stores map(value, position).
  template <typename F>
  OPW_DEVICE void Store(T* y, const F& map) const {
    StoreWith(
        y, [](int, int) { return NothingBeside{}; }, [](int) { return 0; },
        [&](C v, int at, int) { return map(v, at); });
  }

 private:
  OPW_DEVICE void Frame(const OnChip& row) {
    head = row.head;
    edge_count = row.edge_count;
    body = row.body;
    phase = row.phase;
  }
  OPW_DEVICE void Fetch(const T* p) {
    const T* const from = p + head + GroupRank<kLanes>() * kWidth;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Vector(i) < body) vectors[i] = LoadAligned(from + i * GroupSize<kLanes>() * kWidth);
    }
#pragma unroll
    for (int i = 0; i < kEdges; ++i) {
      if (HasEdge(i)) edges[i] = p[EdgeAt(i)];
    }
  }
  static OPW_DEVICE int Vector(int i) { return GroupRank<kLanes>() + i * GroupSize<kLanes>(); }
  static OPW_DEVICE int Edge(int i) { return GroupRank<kLanes>() + i * GroupSize<kLanes>(); }
  OPW_DEVICE bool HasEdge(int i) const { return kEnds != Ends::kWhole && Edge(i) < edge_count; }
  OPW_DEVICE int EdgeAt(int i) const { return Edge(i) < head ? Edge(i) : body * kWidth + Edge(i); }
};

// ---- A row in the shared memory of its block, or of its cluster's blocks (kLanes <= 0): its
// vectors, with the edges in registers. Each thread uses the vectors that it copied itself.
// Compared with OnChip this frees registers, so that there are more blocks, and more bytes in
// flight.

// kVectors: most vectors per thread of a block of kThreads threads, each at an address that the
// compiler knows. 0: any number, in blocks of any size.
template <typename T, int kLanes, int kVectors, int kThreads, Ends kEnds = Ends::kEdged>
struct Held {
  static_assert(kLanes <= 0);
  using C = ComputeOf<T>;
  static constexpr int kWidth = kPerVector<T>;
  static constexpr bool kTrim = kEnds == Ends::kTrimmed;
  T edge;
  int head, edge_count, body;
  int phase;

  // REQUIRES: 16 bytes of dynamic shared memory for each of a thread's vectors; a block has at
  // least 32 threads, and a width has at most 8 elements. In clusters, afterwards all blocks are
  // running, and have read the values that others sent for the previous row.
  OPW_DEVICE void Load(const T* p, int n) {
    LoadFramed<kLanes, kEnds>(*this, p, n, [&] {
      ForOwn<4>(
          [&](Quad* place, int, int at) {
            CopyAsync16(place, p + at);
            return 0;
          },
          [](Quad*, int, int) {});
      if (HasEdge()) edge = p[EdgeAt()];
    });
  }
  // Afterwards the row is available. Loads that the thread starts before it overlap with the row's.
  OPW_DEVICE void Await() const { WaitForCopies(); }
  // As OnChip::Places, of vectors only. REQUIRES: kVectors > 0.
  template <typename F>
  OPW_DEVICE void Places(const F& vector) const {
    ForOwn<1>(
        [&](const Quad*, int i, int at) {
          vector(i, at);
          return 0;
        },
        [](const Quad*, int, int) {});
  }
  // As OnChip::Forget; nothing to do here.
  OPW_DEVICE void Forget() const {}
  // Each element becomes map(it, the element of `other` at its position), rounded, and is also
  // stored at its position of `into`. Unless trimmed, `other` has the row's alignment.
  template <typename F>
  OPW_DEVICE void Merge(const T* other, T* into, const F& map) {
    const bool aligned = Phase(into) == phase;
    ForOwn<2>([&](Quad*, int, int at) { return LoadNear<kTrim>(other + at); },
              [&](Quad* place, int at, const Wide<T>& beside) {
                const Wide<T> v = MapPairs(At(place), beside, map);
                *place = {v.words[0], v.words[1], v.words[2], v.words[3]};
                StoreWide(into + at, v, aligned);
              });
    if (HasEdge())
      into[EdgeAt()] = edge = opw::Store<T>(map(opw::Load(edge), opw::Load(other[EdgeAt()])));
  }
  // Calls f(value) for the thread's elements.
  template <typename F>
  OPW_DEVICE void Each(const F& f) const {
    ForOwn<4>([&](const Quad* place, int, int) { return At(place); },
              [&](const Quad*, int, const Wide<T>& v) {
#pragma unroll
                for (int k = 0; k < kWidth; ++k) f(opw::Load(v.Get(k)));
              });
    if (HasEdge()) f(opw::Load(edge));
  }
  // As OnChip::StoreWith; i is 0 if kVectors is 0.
  template <typename Extras, typename Extra, typename F>
  OPW_DEVICE void StoreWith(T* y, const Extras& extras, const Extra& extra, const F& map) const {
    using Beside = decltype(extras(0, 0));
    const auto all = [&](bool aligned) {
      ForOwn<2>([&](const Quad*, int i, int at) { return extras(i, at); },
                [&](const Quad* place, int at, const Beside& beside) {
                  const Wide<T> v = At(place);
                  C out[kWidth];
#pragma unroll
                  for (int k = 0; k < kWidth; ++k)
                    out[k] = map(opw::Load(v.Get(k)), at + k, beside.Get(k));
                  StoreWide(y + at, RoundAll<T>(out), aligned);
                });
    };
    if (Phase(y) == phase)
      all(true);
    else
      all(false);
    if (HasEdge()) y[EdgeAt()] = opw::Store<T>(map(opw::Load(edge), EdgeAt(), extra(EdgeAt())));
  }
  template <typename F>
  OPW_DEVICE void Store(T* y, const F& map) const {
    StoreWith(
        y, [](int, int) { return NothingBeside{}; }, [](int) { return 0; },
        [&](C v, int at, int) { return map(v, at); });
  }

 private:
  static OPW_DEVICE int Rank() { return GroupRank<kLanes>(); }
  OPW_DEVICE bool HasEdge() const { return kEnds != Ends::kWhole && Rank() < edge_count; }
  OPW_DEVICE int EdgeAt() const { return Rank() < head ? Rank() : body * kWidth + Rank(); }
  static OPW_DEVICE Wide<T> At(const Quad* place) {
    return Anew(Wide<T>{{place->x, place->y, place->z, place->w}});
  }
  // Calls load(place, i, position of the first element) and use(place, position, load's result) for
  // the thread's vectors. If kVectors is 0 it processes kBatch vectors at a time, each loaded
  // before the first is used, and the remaining ones one by one. Otherwise the compiler orders
  // them.
  template <int kBatch, typename L, typename U>
  OPW_DEVICE void ForOwn(const L& load, const U& use) const {
    extern __shared__ Quad places[];
    Quad* place = places + threadIdx.x;
    int i = Rank();
    if constexpr (kVectors > 0) {
      constexpr int kSize = kThreads * (kIsCluster<kLanes> ? -kLanes : 1);
      const int at = head + i * kWidth;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (i + v * kSize < body)
          use(place + v * kThreads, at + v * kSize * kWidth,
              load(place + v * kThreads, v, at + v * kSize * kWidth));
      }
      return;
    }
    const int threads = static_cast<int>(blockDim.x), size = GroupSize<kLanes>();
#pragma unroll 1
    for (; i + (kBatch - 1) * size < body; i += kBatch * size, place += kBatch * threads) {
      decltype(load(place, 0, 0)) loaded[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        loaded[b] = load(place + b * threads, 0, head + (i + b * size) * kWidth);
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        use(place + b * threads, head + (i + b * size) * kWidth, loaded[b]);
    }
#pragma unroll 1
    for (; i < body; i += size, place += threads)
      use(place, head + i * kWidth, load(place, 0, head + i * kWidth));
  }
};

// ---- Rows of any length, read in passes of kBatch vectors per thread

// Calls edge(position) for the group's edge elements. Calls batch(vectors, count, position of the
// first, step between them) for its vectors. `count` is kBatch or 1: a constant after inlining.
// kBack: starts with the last batches, so that the part that an earlier pass read last, and that
// caches still hold, is read first.
template <int kLanes, int kBatch, bool kBack, bool kTrim = false, typename T, typename EdgeF,
          typename BatchF>
OPW_DEVICE void ForSpan(const T* p, i64 n, const EdgeF& edge, const BatchF& batch) {
  const Span<T> s = SpanOf<kTrim>(p, n);
  const i64 size = GroupSize<kLanes>(), rank = GroupRank<kLanes>(),
            turns = s.body / (size * kBatch), step = size * kPerVector<T>;
  const auto rest = [&] {
    for (i64 e = rank; e < s.head + s.tail; e += size) edge(s.Edge(e));
#pragma unroll 1
    for (i64 j = turns * size * kBatch + rank; j < s.body; j += size) {
      Wide<T> v[1];
      v[0] = LoadAligned(p + s.At(j));
      batch(v, 1, s.At(j), step);
    }
  };
  if constexpr (kBack) rest();
  const i64 first = s.At(rank);
#pragma unroll 1
  for (i64 turn = 0; turn < turns; ++turn) {
    const i64 at = first + (kBack ? turns - 1 - turn : turn) * kBatch * step;
    Wide<T> v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) v[b] = LoadAligned(p + at + b * step);
    batch(v, kBatch, at, step);
  }
  if constexpr (!kBack) rest();
}

}  // namespace opw

// Rows in the dynamic shared memory of a block, or of a cluster's blocks: each thread fetches, reads and replaces the same vectors, so that what the next row has
// there is on its way as soon as this row's is stored.
#include "kernels/ops/gpu/rows.cuh"

namespace opw {

// Rows of `extent` elements from x on, which is aligned to 16. kLanes: 0, or -n for a cluster of n blocks. kShifted: rows, or what lies beside them, are not
// aligned as x is; a row's vectors are then those of the tensor, of which the first and the last two are gone through by elements.
//
//   HeldRows<T, 0, false> x(from, rows, extent);
//   x.Fetch(row);
//   for (; row < rows; row += step) {
//     x.Arrive();
//     x.Each(...);
//     x.StoreWith(y + row * extent, row + step, ...);
//   }
template <typename T, int kLanes, bool kShifted>
class HeldRows {
 public:
  using C = ComputeOf<T>;
  static constexpr int kWidth = kPerVector<T>;

  OPW_DEVICE HeldRows(const T* x, i64 rows, i64 extent) : x_(x), rows_(rows), extent_(extent) {
    extern __shared__ Quad held[];
    own_ = held + threadIdx.x;
  }

  // Starts to fetch a row that is there.
  OPW_DEVICE void Fetch(i64 row) {
    next_ = PlaceOf(row);
    for (int i = GroupRank<kLanes>(), slot = 0; i < next_.vectors; i += GroupSize<kLanes>(), ++slot) FetchVector(i, slot);
  }
  // The row that was fetched is there. In clusters, the blocks have read what others gave them for the row before.
  OPW_DEVICE void Arrive() {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
    if constexpr (kIsCluster<kLanes>) ClusterArrive();
#endif
    WaitForCopies();
    row_ = next_;
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
    if constexpr (kIsCluster<kLanes>) ClusterWait();
#endif
  }
  // As OnChip's.
  OPW_DEVICE void Forget() {}
  template <typename F>
  OPW_DEVICE void Each(const F& f) const {
#pragma unroll 4
    for (int i = GroupRank<kLanes>(), slot = 0; i < row_.vectors; i += GroupSize<kLanes>(), ++slot) {
      const Wide<T> v = Read(slot);
      if (row_.Whole(i)) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) f(opw::Load(v.Get(k)));
      } else {
        ForElements(i, [&](int k, int) { f(opw::Load(Element(slot, k))); });
      }
    }
  }
  // Stores map(value, position, extra of its position) at each position of y, which is aligned as the row is, as OnChip's StoreWith does, and fetches row `next` into
  // the places that this leaves, if there is one.
  template <typename Extras, typename Extra, typename F>
  OPW_DEVICE void StoreWith(T* y, i64 next, const Extras& extras, const Extra& extra, const F& map) {
    constexpr int kBatch = 2;
    next_ = next < rows_ ? PlaceOf(next) : Place{};
    const int most = row_.vectors > next_.vectors ? row_.vectors : next_.vectors, size = GroupSize<kLanes>();
#pragma unroll 1
    for (int first = GroupRank<kLanes>(), slot = 0; first < most; first += kBatch * size, slot += kBatch) {
      Wide<T> v[kBatch];
      decltype(extras(0)) beside[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * size;
        if (row_.Whole(i)) v[b] = Read(slot + b), beside[b] = extras(row_.At(i));
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * size;
        if (row_.Whole(i)) {
          const int at = row_.At(i);
          C out[kWidth];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) out[k] = map(opw::Load(v[b].Get(k)), at + k, beside[b].Get(k));
          StoreWide(y + at, RoundAll<T>(out), true);
        } else if (kShifted && i < row_.vectors) {
          ForElements(i, [&](int k, int at) { y[at] = opw::Store<T>(map(opw::Load(Element(slot + b, k)), at, extra(at))); });
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * size < next_.vectors) FetchVector(first + b * size, slot + b);
      }
    }
  }
  template <typename F>
  OPW_DEVICE void Store(T* y, i64 next, const F& map) {
    StoreWith(y, next, [](int) { return NothingBeside{}; }, [](int) { return 0; }, [&](C v, int at, int) { return map(v, at); });
  }

 private:
  // Where a row lies among the vectors from x on.
  struct Place {
    i64 first = 0;               // vector
    int vectors = 0, phase = 0;  // `phase` elements of the first are not the row's
    int begin = 0, end = 0;      // vectors [begin, end) are the row's alone, and with kShifted have a vector's elements on either side
    OPW_DEVICE int At(int i) const { return i * kWidth - phase; }
    OPW_DEVICE bool Whole(int i) const { return i < end && (!kShifted || i >= begin); }
  };
  OPW_DEVICE Place PlaceOf(i64 row) const {
    Place p;
    const i64 start = row * extent_;
    p.first = start / kWidth;
    p.phase = kShifted ? static_cast<int>(start - p.first * kWidth) : 0;
    p.vectors = static_cast<int>((p.phase + extent_ + kWidth - 1) / kWidth);
    p.begin = kShifted ? (p.phase > 0 ? 2 : 1) : 0;
    p.end = kShifted ? static_cast<int>((p.phase + extent_) / kWidth) - 1 : p.vectors;
    return p;
  }
  OPW_DEVICE Quad* Slot(int slot) const { return own_ + slot * static_cast<int>(blockDim.x); }
  OPW_DEVICE void FetchVector(int i, int slot) const {
    const i64 at = (next_.first + i) * kWidth, left = rows_ * extent_ - at;
    CopyToShared(Slot(slot), x_ + at, left < kWidth ? static_cast<int>(left * static_cast<i64>(sizeof(T))) : 16);
  }
  OPW_DEVICE Wide<T> Read(int slot) const {
    const Quad q = *Slot(slot);
    return {{q.x, q.y, q.z, q.w}};
  }
  OPW_DEVICE T Element(int slot, int k) const { return reinterpret_cast<const T*>(Slot(slot))[k]; }
  // Calls f(place in the vector, position in the row) for the row's elements of vector i.
  template <typename F>
  OPW_DEVICE void ForElements(int i, const F& f) const {
    for (int k = 0; k < kWidth; ++k) {
      if (const int at = row_.At(i) + k; at >= 0 && at < extent_) f(k, at);
    }
  }

  const T* const x_;
  const i64 rows_, extent_;
  Quad* own_;
  Place row_, next_;
};

}  // namespace opw

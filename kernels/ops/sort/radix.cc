// sort, argsort and topk of dense tensors: keys with their places, by radix, eight bits at a time
// from the lowest on. Slices are sorted side by side, or of few long ones the parts.
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/sort/keys.h"
#include "kernels/ops/sort/sort.h"

namespace opwire::ops::sort {
namespace {

using portable::VisitItem;
using portable::VisitKey;

constexpr int64_t kPart =
    65536;  // elements that are counted or moved before the stop word is read again
constexpr int64_t kShort = 256;  // up to as many are sorted by comparisons
constexpr int64_t kDigits = 256;
constexpr int64_t kEnough = 16;  // slices that keep all threads busy
constexpr int64_t kUnits = 64;

template <SortOp kOp>
const char* SupportsRadix(const opw_call* c) {
  return AllDense(c, 1, kOp == SortOp::kArgsort ? 1 : 2) ? nullptr : "needs dense tensors";
}

// The slices of a call, as [outer, extent, inner].
struct Slices {
  int64_t count, extent, inner;
  explicit Slices(const Ordering& o)
      : count(o.x.elements == 0 ? 0 : o.x.elements / o.extent),
        extent(o.extent),
        inner(ElementsFrom(o.x, o.dim + 1)) {}
  int64_t parts() const { return (extent - 1) / kPart + 1; }
  // The first element of slice s where slices have n elements.
  int64_t Start(int64_t s, int64_t n) const { return s / inner * n * inner + s % inner; }
};

// How the work is spread: up to kUnits slices at a time, or the parts of one slice after the other.
// By the sizes only, as they say how much memory it takes.
struct Spread {
  int64_t units, unit_bytes;
  bool parts;
  Spread(const Slices& s, int64_t item_bytes)
      : units(std::min(s.count, kUnits)), parts(s.parts() > (s.count < kEnough ? 1 : 4)) {
    if (parts) units = 1;
    const int64_t items = s.extent * item_bytes * (s.extent <= kShort ? 1 : 2);
    unit_bytes =
        items +
        (s.extent <= kShort ? 0 : s.parts() * kDigits * static_cast<int64_t>(sizeof(int64_t)));
  }
};

template <typename Item>
class Sorter {
 public:
  // `memory` is a unit's part of the workspace.
  Sorter(const opw_call* c, const Ordering& o, const Slices& slices, char* memory, bool parallel)
      : c_(c),
        o_(o),
        slices_(slices),
        from_(reinterpret_cast<Item*>(memory)),
        to_(from_ + slices.extent),
        counts_(reinterpret_cast<int64_t*>(to_ + slices.extent)),
        parallel_(parallel) {}

  template <typename Key>
  void Sort(int64_t slice) {
    using Bits = typename Key::Bits;
    const int64_t n = slices_.extent, inner = slices_.inner,
                  results = slices_.Start(slice, o_.count);
    const Bits* const x = static_cast<const Bits*>(o_.x.data) + slices_.Start(slice, n);
    const auto flip = static_cast<Bits>(o_.descending ? ~Bits{0} : Bits{0});
    ForParts([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        from_[i] = Item::Of(static_cast<Bits>(Key::Key(x[i * inner]) ^ flip), i);
    });
    if (n <= kShort)
      std::sort(from_, from_ + n);
    else
      for (size_t byte = 0; byte < sizeof(Bits); ++byte) Pass(static_cast<int>(byte) * 8);
    int64_t* const indices = static_cast<int64_t*>(o_.indices.data) + results;
    Bits* const values =
        o_.values == nullptr ? nullptr : static_cast<Bits*>(o_.values->data) + results;
    ForParts([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < std::min(end, o_.count); ++i) {
        const int64_t place = from_[i].place();
        indices[i * inner] = place;
        if (values != nullptr) values[i * inner] = x[place * inner];
      }
    });
  }

 private:
  // Calls f for each part of the slice, side by side if that is how the work is spread.
  template <typename F>
  void ForParts(const F& f) const {
    const auto part = [&](int64_t p) { f(p * kPart, std::min((p + 1) * kPart, slices_.extent)); };
    if (parallel_) {
      ParallelFor(c_, slices_.parts(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) part(p);
      });
    } else {
      for (int64_t p = 0; p < slices_.parts() && (p == 0 || !Stopped(c_)); ++p) part(p);
    }
  }

  // Moves items by a digit of their keys; those of equal digits stay in their order. Where the run
  // was stopped parts are missing from the counts: then none is moved.
  void Pass(int shift) {
    const int64_t parts = slices_.parts();
    std::fill_n(counts_, parts * kDigits, int64_t{0});
    ForParts([&](int64_t begin, int64_t end) {
      int64_t* const counts = counts_ + begin / kPart * kDigits;
      for (int64_t i = begin; i < end; ++i) ++counts[from_[i].key() >> shift & (kDigits - 1)];
    });
    int64_t sum = 0;
    bool same = false;
    for (int64_t d = 0; d < kDigits; ++d) {
      const int64_t before = sum;
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t n = counts_[p * kDigits + d];
        counts_[p * kDigits + d] = sum;
        sum += n;
      }
      same |= sum - before == slices_.extent;
    }
    if (same || sum != slices_.extent) return;
    ForParts([&](int64_t begin, int64_t end) {
      int64_t* const counts = counts_ + begin / kPart * kDigits;
      for (int64_t i = begin; i < end; ++i)
        to_[counts[from_[i].key() >> shift & (kDigits - 1)]++] = from_[i];
    });
    std::swap(from_, to_);
  }

  const opw_call* const c_;
  const Ordering& o_;
  const Slices& slices_;
  Item *from_, *to_;
  int64_t* const counts_;
  const bool parallel_;
};

template <SortOp kOp>
int PrepareSort(const opw_call* c, void**, int64_t* workspace_bytes) {
  const Ordering o(c, kOp);
  const Slices slices(o);
  if (o.indices.elements == 0) return OPW_OK;
  VisitKey(o.x.dtype, [&](auto key) {
    VisitItem<typename decltype(key)::Bits>(o.extent, [&](auto item) {
      const Spread spread(slices, sizeof item);
      *workspace_bytes = spread.units * spread.unit_bytes;
    });
  });
  return OPW_OK;
}

template <SortOp kOp>
int Sort(const opw_call* c) {
  const Ordering o(c, kOp);
  const Slices slices(o);
  if (o.indices.elements == 0) return OPW_OK;
  VisitKey(o.x.dtype, [&](auto key) {
    using Key = decltype(key);
    VisitItem<typename Key::Bits>(o.extent, [&](auto item) {
      const Spread spread(slices, sizeof item);
      const auto sorter = [&](int64_t unit) {
        return Sorter<decltype(item)>(c, o, slices,
                                      static_cast<char*>(c->workspace) + unit * spread.unit_bytes,
                                      spread.parts);
      };
      if (spread.parts) {
        for (int64_t s = 0; s < slices.count; ++s) sorter(0).template Sort<Key>(s);
        return;
      }
      ParallelFor(c, spread.units, 1, [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = slices.count * unit / spread.units,
                        last = slices.count * (unit + 1) / spread.units;
          const int64_t between = std::max<int64_t>(1, kPart / slices.extent);
          for (int64_t s = first; s < last && ((s - first) % between != between - 1 || !Stopped(c));
               ++s)
            sorter(unit).template Sort<Key>(s);
        }
      });
    });
  });
  return OPW_OK;
}

}  // namespace

void AddRadix(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* op, const opw_kernel& kernel) {
    AddProduction(table, isa, op, "radix", "", 0, kArithmetic | kBoolean, kernel);
  };
  add("sort", {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsRadix<SortOp::kSort>,
               PrepareSort<SortOp::kSort>, nullptr, Sort<SortOp::kSort>});
  add("topk", {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsRadix<SortOp::kTopk>,
               PrepareSort<SortOp::kTopk>, nullptr, Sort<SortOp::kTopk>});
  add("argsort", {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsRadix<SortOp::kArgsort>,
                  PrepareSort<SortOp::kArgsort>, nullptr, Sort<SortOp::kArgsort>});
}

}  // namespace opwire::ops::sort

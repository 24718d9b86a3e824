// topk along the last axis of dense tensors. Parts of the slices keep the best elements so far in a
// buffer. When it is full, those that cannot be results are dropped. Then the scan skips to the
// next element that precedes the last one kept.
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/sort/cpu_loops.h"
#include "kernels/ops/sort/keys.h"
#include "kernels/ops/sort/sort.h"

namespace opwire::ops::sort {
namespace {

using portable::VisitItem;
using portable::VisitKey;

constexpr int64_t kPart = 65536;  // elements that are read between two checks of the stop word
constexpr int64_t kEnough = 16;   // slices that keep all threads busy
constexpr int64_t kMost = 4096;   // most elements that are sorted at once
constexpr int64_t kSpare = 64;    // places of a buffer beyond twice the number of kept elements

const char* SupportsTopk(const opw_call* c) {
  const Ordering o(c, SortOp::kTopk);
  if (!AllDense(c, 1, 2)) return "needs dense tensors";
  if (ElementsFrom(o.x, o.dim + 1) != 1) return "only along the last axis";
  return o.count <= kMost ? nullptr : "only for k up to 4096";
}

// Few long slices are divided into parts.
struct Parts {
  int64_t slices, parts, extent, capacity;  // elements of a part, and places of its buffer
  explicit Parts(const Ordering& o)
      : slices(o.x.elements / o.extent),
        parts(slices < kEnough ? (o.extent - 1) / (4 * kPart) + 1 : 1) {
    extent = (o.extent - 1) / parts + 1;
    capacity = std::min(extent, 2 * o.count + kSpare);
  }
};

int PrepareTopk(const opw_call* c, void**, int64_t* workspace_bytes) {
  const Ordering o(c, SortOp::kTopk);
  if (o.indices.elements == 0) return OPW_OK;
  VisitKey(o.x.dtype, [&](auto key) {
    VisitItem<typename decltype(key)::Bits>(o.extent, [&](auto item) {
      const Parts p(o);
      *workspace_bytes = p.slices * p.parts * p.capacity * static_cast<int64_t>(sizeof item) +
                         p.slices * p.parts * static_cast<int64_t>(sizeof(int64_t));
    });
  });
  return OPW_OK;
}

// Moves the `count` items that come first in order to the beginning, unsorted. Returns their
// number, or n if that is less.
template <typename Item>
int64_t Keep(Item* items, int64_t n, int64_t count) {
  if (n <= count) return n;
  std::nth_element(items, items + count - 1, items + n);
  return count;
}

template <const TopkLoops& (*kLoops)()>
int Topk(const opw_call* c) {
  const Ordering o(c, SortOp::kTopk);
  if (o.indices.elements == 0) return OPW_OK;
  const FindBelow find = kLoops().find[o.x.dtype];
  const uint64_t flip = o.descending ? ~uint64_t{0} : 0;
  const Parts p(o);
  VisitKey(o.x.dtype, [&](auto key) {
    using Key = decltype(key);
    using Bits = typename Key::Bits;
    VisitItem<Bits>(o.extent, [&](auto item) {
      using Item = decltype(item);
      Item* const buffers = static_cast<Item*>(c->workspace);
      int64_t* const kept = reinterpret_cast<int64_t*>(buffers + p.slices * p.parts * p.capacity);
      ParallelFor(c, p.slices * p.parts, RowsPerRange(p.extent), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const Bits* const x = static_cast<const Bits*>(o.x.data) + unit / p.parts * o.extent;
          Item* const items = buffers + unit * p.capacity;
          const int64_t first = unit % p.parts * p.extent,
                        last = std::min(first + p.extent, o.extent);
          int64_t n = 0;
          uint64_t bound = 0;
          bool bounded = false;
          for (int64_t from = first; from < last; from += kPart) {
            if (from > first && Stopped(c)) return;
            const int64_t to = std::min(from + kPart, last);
            for (int64_t i = from; i < to; ++i) {
              if (bounded && (i = find(x, i, to, flip, bound)) == to) break;
              items[n++] = Item::Of(static_cast<Bits>(Key::Key(x[i]) ^ static_cast<Bits>(flip)), i);
              if (n < p.capacity || n <= o.count) continue;
              n = Keep(items, n, o.count);
              bounded = true;
              bound = items[n - 1].key();
            }
          }
          kept[unit] = Keep(items, n, o.count);
        }
      });
      ParallelFor(c, p.slices, RowsPerRange(o.count * p.parts), [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
          Item* const items = buffers + s * p.parts * p.capacity;
          int64_t n = kept[s * p.parts];
          for (int64_t part = 1; part < p.parts; ++part) {
            std::copy_n(items + part * p.capacity, kept[s * p.parts + part], items + n);
            n += kept[s * p.parts + part];
          }
          n = Keep(items, n, o.count);
          std::sort(items, items + n);
          const Bits* const x = static_cast<const Bits*>(o.x.data) + s * o.extent;
          for (int64_t i = 0; i < n; ++i) {
            static_cast<int64_t*>(o.indices.data)[s * o.count + i] = items[i].place();
            static_cast<Bits*>(o.values->data)[s * o.count + i] = x[items[i].place()];
          }
        }
      });
    });
  });
  return OPW_OK;
}

}  // namespace

void AddTopk(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* set, int priority, int (*run)(const opw_call*)) {
    AddProduction(table, isa, "topk", set, set, priority, kArithmetic | kBoolean,
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsTopk, PrepareTopk, nullptr, run});
  };
  add("avx512", 2, Topk<TopkAvx512>);
  add("avx2", 1, Topk<TopkAvx2>);
}

}  // namespace opwire::ops::sort

// kv_append, element by element.
#include "ir/scalar/scalar.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/kv_append.h"
#include "kernels/ops/families.h"

namespace opwire::ops::attention {
namespace {

// All pages, then the new rows.
int AppendPaged(const opw_call* c, const AppendShapes& s) {
  VisitBits(DTypeBytes(TypeOf(s.y)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    U* const y = static_cast<U*>(s.y.data);
    for (int64_t i = 0; i < s.y.elements && !StoppedAt(c, i); ++i)
      y[OffsetOf(s.y, i)] = static_cast<const U*>(s.cache.data)[OffsetOf(s.cache, i)];
    for (int64_t b = 0; b < s.batches; ++b) {
      const int64_t first = s.First(c, b);
      for (int64_t r = 0; first >= 0 && r < s.heads * s.new_rows && !StoppedAt(c, r); ++r) {
        const int64_t to = s.RowOf(c, b, r / s.new_rows, first + r % s.new_rows),
                      from = b * s.heads * s.new_rows + r;
        for (int64_t l = 0; l < s.columns && to >= 0; ++l) {
          y[OffsetOf(s.y, to * s.columns + l)] =
              static_cast<const U*>(s.added.data)[OffsetOf(s.added, from * s.columns + l)];
        }
      }
    }
  });
  return OPW_OK;
}

int KvAppend(const opw_call* c) {
  const AppendShapes s(c);
  if (s.y.elements == 0) return OPW_OK;
  if (s.paged) return AppendPaged(c, s);
  const int64_t batch = s.heads * s.rows * s.columns;
  VisitBits(DTypeBytes(TypeOf(s.y)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, s.batches, std::max<int64_t>(1, kReferenceGrain / batch),
                [&](int64_t begin, int64_t end) {
                  for (int64_t b = begin; b < end; ++b) {
                    const int64_t first = s.First(c, b);
                    for (int64_t i = 0; i < batch; ++i) {
                      if (StoppedAt(c, i)) return;
                      const int64_t head = i / (s.rows * s.columns), row = i / s.columns % s.rows,
                                    column = i % s.columns;
                      const bool is_new = first >= 0 && row >= first && row - first < s.new_rows;
                      const int64_t at = b * batch + i,
                                    from = ((b * s.heads + head) * s.new_rows + row - first) *
                                               s.columns +
                                           column;
                      const opw_tensor& source = is_new ? s.added : s.cache;
                      static_cast<U*>(s.y.data)[OffsetOf(s.y, at)] =
                          static_cast<const U*>(source.data)[OffsetOf(source, is_new ? from : at)];
                    }
                  }
                });
  });
  return OPW_OK;
}

}  // namespace

void AddKvAppendReference(VariantTable& table) {
  AddReference(
      table, "kv_append",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, nullptr, nullptr, KvAppend});
}

}  // namespace opwire::ops::attention

// kv_append of dense tensors: rows are copied, of a cache that is updated where it is the new ones
// only.
#include "kernels/ops/attention/kv_append.h"

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::attention {
namespace {

constexpr int64_t kRangeBytes = 65536;

const char* SupportsAppend(const opw_call* c) {
  return AllDense(c, 4) ? nullptr : "needs dense tensors";
}

int PrepareAppend(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes =
      std::max<int64_t>(1, Operand(c, 2).elements) * static_cast<int64_t>(sizeof(int64_t));
  return OPW_OK;
}

int KvAppend(const opw_call* c) {
  const AppendShapes s(c);
  if (s.y.elements == 0) return OPW_OK;
  int64_t* const firsts = static_cast<int64_t*>(c->workspace);
  ParallelFor(c, s.position.elements, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) firsts[b] = s.First(c, b);
  });
  const int64_t bytes = s.columns * DTypeBytes(TypeOf(s.y)),
                range = std::max<int64_t>(1, kRangeBytes / bytes);
  char* const y = static_cast<char*>(s.y.data);
  const char *const cache = static_cast<const char*>(s.cache.data), *const added =
                                                                        static_cast<const char*>(
                                                                            s.added.data);
  const auto first = [&](int64_t head) { return firsts[s.one() ? 0 : head / s.heads]; };
  if (s.paged && y != cache) {
    ParallelFor(c, s.pages() * s.heads * s.rows, range, [&](int64_t begin, int64_t end) {
      std::memcpy(y + begin * bytes, cache + begin * bytes,
                  static_cast<size_t>((end - begin) * bytes));
    });
  }
  if (s.paged || y == cache) {
    ParallelFor(c, s.batches * s.heads * s.new_rows, range, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t head = r / s.new_rows, to = first(head);
        if (to < 0) continue;
        const int64_t at = s.RowOf(c, head / s.heads, head % s.heads, to + r % s.new_rows);
        if (at < 0) continue;
        char* const row = y + at * bytes;
        if (row != added + r * bytes)
          std::memcpy(row, added + r * bytes, static_cast<size_t>(bytes));
      }
    });
    return OPW_OK;
  }
  ParallelFor(c, s.batches * s.heads * s.rows, range, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t head = r / s.rows, to = first(head), row = r % s.rows - to;
      const bool is_new = to >= 0 && row >= 0 && row < s.new_rows;
      const char* const from =
          is_new ? added + (head * s.new_rows + row) * bytes : cache + r * bytes;
      if (from != y + r * bytes) std::memcpy(y + r * bytes, from, static_cast<size_t>(bytes));
    }
  });
  return OPW_OK;
}

}  // namespace

void AddKvAppend(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "kv_append", "rows", "", 0, kAll,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, SupportsAppend, PrepareAppend,
                 nullptr, KvAppend});
}

}  // namespace opwire::ops::attention

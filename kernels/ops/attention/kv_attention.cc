// kv_attention by the blocks of attention: blocks of queries that share a head of keys, one after
// the other.
#include "kernels/ops/attention/kv_attention.h"

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::attention {
namespace {

constexpr int64_t kCacheGrain = 1 << 19;  // multiplications of a range: about 20 us

// The keys of a block.
struct Cache {
  const opw_call* c;
  const KvAttentionShapes& s;
  int64_t batch, head;
};

const char* SupportsCache(const opw_call* c) {
  const KvAttentionShapes s(c);
  return std::max(s.depth, s.value_depth) > kAttentionDepth ? "a head has more than 256 elements"
                                                            : nullptr;
}

template <const AttentionLoops& (*kLoops)()>
int RunCache(const opw_call* c) {
  const KvAttentionShapes s(c);
  if (s.batches * s.heads * s.rows == 0) return OPW_OK;
  const AttentionWidth(&widths)[kAttentionWidths] = kLoops().of[s.query.dtype];
  const int64_t each = widths[kAttentionWidths - 1].queries, blocks = (s.rows + each - 1) / each,
                work = std::min(each, s.rows) * std::max<int64_t>(1, s.positions) *
                       (s.depth + s.value_depth + 16);
  ParallelFor(c, s.batches * s.heads * blocks, std::max<int64_t>(1, kCacheGrain / work),
              [&](int64_t begin, int64_t end) {
                for (int64_t u = begin; u < end; ++u) {
                  const int64_t slice = u / blocks, first_row = u % blocks * each;
                  const Cache cache{c, s, slice / s.heads, slice % s.heads};
                  const int64_t length = s.LengthOf(c, cache.batch),
                                row = s.paged ? 0 : s.RowsOf(cache.batch, cache.head);
                  AttentionBlock b{};
                  b.query = s.query.data, b.key = At(s.key, row * s.depth),
                  b.value = At(s.value, row * s.value_depth);
                  b.output = c->results[0].data, b.log_sum_exp = c->results[1].data;
                  b.count = std::min(each, s.rows - first_row);
                  b.first = length, b.last = 0;
                  for (int64_t r = 0; r < b.count; ++r) {
                    const int64_t at = slice * s.rows + first_row + r;
                    const AttentionRange range = s.KeysOf(first_row + r, length);
                    b.queries[r] = {at * s.depth, 0,           at * s.value_depth,
                                    at,           range.first, range.last};
                    b.first = std::min(b.first, range.first), b.last = std::max(b.last, range.last);
                  }
                  b.depth = s.depth, b.value_depth = s.value_depth;
                  b.key_row = s.depth, b.value_row = s.value_depth;
                  if (s.paged) {
                    b.page = s.page;
                    b.page_at = [](const void* context, int64_t page) {
                      const auto& of = *static_cast<const Cache*>(context);
                      const int64_t found = PageOf(of.c, 4, of.s.pages, of.batch, page);
                      return found < 0 ? found : of.s.RowsOf(found, of.head);
                    };
                  }
                  b.scale = s.scale;
                  b.stopped = [](const void* context) {
                    return Stopped(static_cast<const Cache*>(context)->c);
                  };
                  b.context = &cache;
                  WidthFor(widths, b.count).run(b);
                }
              });
  return OPW_OK;
}

}  // namespace

void AddKvAttention(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "kv_attention", "avx512", "avx512", 2, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, SupportsCache, nullptr,
                 nullptr, RunCache<AttentionLoopsAvx512>});
  AddProduction(table, isa, "kv_attention", "avx2", "avx2", 1, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, SupportsCache, nullptr,
                 nullptr, RunCache<AttentionLoopsAvx2>});
}

}  // namespace opwire::ops::attention

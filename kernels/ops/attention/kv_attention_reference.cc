// kv_attention, one row after the other, in f64. Scores are computed again each time that they are
// needed.
#include "ir/scalar/scalar.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/kv_attention.h"
#include "kernels/ops/families.h"

namespace opwire::ops::attention {
namespace {

constexpr int64_t kPageColumns = 64;  // of value, summed together

// Calls f(score, row of the caches) for each position that row r of a head sees.
template <typename T, typename F>
void ForSeen(const opw_call* c, const KvAttentionShapes& s, int64_t b, int64_t head, int64_t r,
             int64_t length, const F& f) {
  const int64_t query = ((b * s.heads + head) * s.rows + r) * s.depth,
                grain = std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, s.depth));
  const AttentionRange range = s.KeysOf(r, length);
  int64_t page = b;
  for (int64_t j = range.first; j < range.last; ++j) {
    if (j % grain == grain - 1 && Stopped(c)) return;
    if (s.paged && (j == range.first || j % s.page == 0))
      page = PageOf(c, 4, s.pages, b, j / s.page);
    if (page < 0) {
      j += s.page - 1 - j % s.page;
      continue;
    }
    const int64_t row = s.RowsOf(page, head) + j % s.page;
    double sum = 0;
    for (int64_t l = 0; l < s.depth; ++l)
      sum += static_cast<double>(Load<T>(s.query.data, query + l)) *
             static_cast<double>(Load<T>(s.key.data, row * s.depth + l));
    f(sum * s.scale, row);
  }
}

int KvAttention(const opw_call* c) {
  const KvAttentionShapes s(c);
  const int64_t all = s.batches * s.heads * s.rows;
  VisitType(TypeOf(s.query), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      using C = ComputeOf<T>;
      const int64_t each =
          std::max<int64_t>(1, (s.depth + s.value_depth) * std::max<int64_t>(1, s.positions));
      ParallelFor(
          c, all, std::max<int64_t>(1, kReferenceGrain / each), [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end && !Stopped(c); ++at) {
              const int64_t r = at % s.rows, head = at / s.rows % s.heads,
                            b = at / s.rows / s.heads, length = s.LengthOf(c, b);
              double most = -std::numeric_limits<double>::infinity();
              ForSeen<T>(c, s, b, head, r, length,
                         [&](double score, int64_t) { most = std::fmax(most, score); });
              const double base =
                  std::isinf(most) && most < 0 ? 0 : most;  // without keys, and with NaN only
              for (int64_t first = 0; first == 0 || first < s.value_depth; first += kPageColumns) {
                const int64_t columns = std::min(kPageColumns, s.value_depth - first);
                double total = 0, sums[kPageColumns] = {};
                ForSeen<T>(c, s, b, head, r, length, [&](double score, int64_t row) {
                  const double p = std::exp(score - base);
                  for (int64_t e = 0; e < columns; ++e)
                    sums[e] += p * static_cast<double>(
                                       Load<T>(s.value.data, row * s.value_depth + first + e));
                  total += p;
                });
                for (int64_t e = 0; e < columns; ++e)
                  Store<T>(c->results[0].data, at * s.value_depth + first + e,
                           total == 0 ? 0 : sums[e] / total);
                if (first == 0) Store<C>(c->results[1].data, at, base + std::log(total));
              }
            }
          });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddKvAttentionReference(VariantTable& table) {
  AddReference(table, "kv_attention",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, nullptr, nullptr, nullptr,
                KvAttention});
}

}  // namespace opwire::ops::attention

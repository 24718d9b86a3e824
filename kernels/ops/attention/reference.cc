// scaled_dot_product_attention, one query after the other, in f64. Scores are computed again each
// time that they are needed.
#include "ir/scalar/scalar.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/families.h"

namespace opwire::ops::attention {
namespace {

using Shapes = AttentionShapes;

constexpr int64_t kColumns = 64;  // of value, summed together

// The scores of one query.
template <typename T>
struct Scores {
  const opw_call* c;
  const Shapes& s;
  int64_t query, key, mask;  // offsets of the query, the head's keys and the query's mask

  // -inf if the mask excludes the key.
  double operator()(int64_t j) const {
    const opw_tensor &q = Operand(c, 0), &k = Operand(c, 1), &m = Operand(c, 3);
    const int64_t at = mask + j * s.column[Shapes::kMask];
    if (TypeOf(m) == DType::kBool && !Load<Bool>(m.data, at))
      return -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (int64_t l = 0; l < s.depth && !StoppedAt(c, l); ++l) {
      sum += static_cast<double>(Load<T>(q.data, query + l * s.column[Shapes::kQuery])) *
             static_cast<double>(
                 Load<T>(k.data, key + j * s.row[Shapes::kKey] + l * s.column[Shapes::kKey]));
    }
    const bool added = !Absent(m) && TypeOf(m) != DType::kBool;
    return sum * s.scale + (added ? static_cast<double>(Load<T>(m.data, at)) : 0);
  }
};

int Attention(const opw_call* c) {
  const Shapes s(c);
  const opw_tensor &output = c->results[0], &log_sum_exp = c->results[1];
  if (s.heads * s.queries == 0) return OPW_OK;
  const int64_t each = std::max<int64_t>(1, s.depth + s.value_depth),
                grain = std::max<int64_t>(1, kReferenceGrain / each);
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      using C = ComputeOf<T>;
      ParallelFor(
          c, s.heads * s.queries, std::max<int64_t>(1, grain / std::max<int64_t>(1, s.keys)),
          [&](int64_t begin, int64_t end) {
            Walk<Shapes::kTensors> head(s.rank, s.extents);
            for (int t = 0; t < Shapes::kTensors; ++t) {
              for (int a = 0; a < s.rank; ++a) head.SetStride(t, a, s.strides[t][a]);
            }
            for (int64_t r = begin; r < end; ++r) {
              const int64_t i = r % s.queries;
              head.Start(r / s.queries);
              const auto at = [&](Shapes::Tensor t) { return head.offset(t) + i * s.row[t]; };
              const Scores<T> score{c, s, at(Shapes::kQuery), head.offset(Shapes::kKey),
                                    at(Shapes::kMask)};
              const auto stopped = [&](int64_t j) { return j % grain == grain - 1 && Stopped(c); };
              const AttentionRange range = s.KeysOf(i);
              double most = -std::numeric_limits<double>::infinity();
              for (int64_t j = range.first; j < range.last && !stopped(j); ++j)
                most = std::fmax(most, score(j));
              const double base =
                  std::isinf(most) && most < 0 ? 0 : most;  // without keys, and with NaN only
              for (int64_t first = 0; first == 0 || first < s.value_depth; first += kColumns) {
                const int64_t columns = std::min(kColumns, s.value_depth - first);
                double total = 0, sums[kColumns] = {};
                for (int64_t j = range.first; j < range.last && !stopped(j); ++j) {
                  const double p = std::exp(score(j) - base);
                  if (p == 0) continue;
                  const int64_t from = head.offset(Shapes::kValue) + j * s.row[Shapes::kValue];
                  for (int64_t e = 0; e < columns; ++e) {
                    sums[e] +=
                        p * static_cast<double>(Load<T>(
                                Operand(c, 2).data, from + (first + e) * s.column[Shapes::kValue]));
                  }
                  total += p;
                }
                for (int64_t e = 0; e < columns; ++e) {
                  Store<T>(output.data,
                           at(Shapes::kOutput) + (first + e) * s.column[Shapes::kOutput],
                           total == 0 ? 0 : sums[e] / total);
                }
                if (first == 0)
                  Store<C>(log_sum_exp.data, at(Shapes::kLogSumExp), base + std::log(total));
              }
            }
          });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddAttentionReference(VariantTable& table) {
  AddReference(
      table, "scaled_dot_product_attention",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, nullptr, nullptr, nullptr, Attention});
}

}  // namespace opwire::ops::attention

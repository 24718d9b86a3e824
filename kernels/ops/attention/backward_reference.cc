// scaled_dot_product_attention_backward in f64: query by query, then key by key. Weights are
// computed again each time.
#include "ir/scalar/scalar.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/families.h"

namespace opwire::ops::attention {
namespace {

using Shapes = AttentionShapes;

constexpr int64_t kGradColumns = 64;  // of a gradient, summed together

// The values of one pair of a query and a key, at the offsets of their rows.
template <typename T>
struct Pair {
  const opw_call* c;
  const Shapes& s;

  double Dot(int x, Shapes::Tensor x_is, int64_t x_row, int y, Shapes::Tensor y_is, int64_t y_row,
             int64_t depth) const {
    double sum = 0;
    for (int64_t l = 0; l < depth && !StoppedAt(c, l); ++l) {
      sum += static_cast<double>(Load<T>(Operand(c, x).data, x_row + l * s.column[x_is])) *
             static_cast<double>(Load<T>(Operand(c, y).data, y_row + l * s.column[y_is]));
    }
    return sum;
  }
  // The weight P; 0 if the mask excludes the key.
  double Weight(int64_t query, int64_t key, int64_t mask, int64_t log_sum) const {
    const opw_tensor& m = Operand(c, 6);
    const bool is_bool = TypeOf(m) == DType::kBool;
    if (is_bool && !Load<Bool>(m.data, mask)) return 0;
    double score = Dot(1, Shapes::kQuery, query, 2, Shapes::kKey, key, s.depth) * s.scale;
    if (!Absent(m) && !is_bool) score += static_cast<double>(Load<T>(m.data, mask));
    if (std::isinf(score) && score < 0) return 0;
    return std::exp(score - static_cast<double>(Load<ComputeOf<T>>(Operand(c, 5).data, log_sum)));
  }
};

// Adds `columns` elements of a row of operand x, starting with `first`, times a factor.
template <typename T>
void AddRow(const opw_call* c, const Shapes& s, int x, Shapes::Tensor x_is, int64_t row,
            int64_t first, int64_t columns, double factor, double* sums) {
  for (int64_t e = 0; e < columns; ++e)
    sums[e] += factor *
               static_cast<double>(Load<T>(Operand(c, x).data, row + (first + e) * s.column[x_is]));
}

template <typename T>
void Backward(const opw_call* c, const Shapes& s) {
  const Pair<T> pair{c, s};
  const int64_t grain =
      std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, s.depth + s.value_depth));
  const auto stopped = [&](int64_t i) { return i % grain == grain - 1 && Stopped(c); };
  const auto at = [&](const Walk<Shapes::kAll>& head, Shapes::Tensor t, int64_t row) {
    return head.offset(t) + row * s.row[t];
  };
  const auto walk = [&](int rank) {
    Walk<Shapes::kAll> head(rank, s.extents);
    for (int t = 0; t < Shapes::kAll; ++t) {
      for (int a = 0; a < rank; ++a) head.SetStride(t, a, s.strides[t][a]);
    }
    return head;
  };
  ParallelFor(
      c, s.heads * s.queries, std::max<int64_t>(1, grain / std::max<int64_t>(1, s.keys)),
      [&](int64_t begin, int64_t end) {
        Walk<Shapes::kAll> head = walk(s.rank);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t i = r % s.queries;
          head.Start(r / s.queries);
          const int64_t grad = at(head, Shapes::kGrad, i);
          const double delta = pair.Dot(0, Shapes::kGrad, grad, 4, Shapes::kOutput,
                                        at(head, Shapes::kOutput, i), s.value_depth);
          const AttentionRange range = s.KeysOf(i);
          for (int64_t first = 0; first < s.depth; first += kGradColumns) {
            const int64_t columns = std::min(kGradColumns, s.depth - first);
            double sums[kGradColumns] = {};
            for (int64_t j = range.first; j < range.last && !stopped(j); ++j) {
              const int64_t key = at(head, Shapes::kKey, j);
              const double weight =
                  pair.Weight(at(head, Shapes::kQuery, i), key,
                              at(head, Shapes::kMask, i) + j * s.column[Shapes::kMask],
                              at(head, Shapes::kLogSumExp, i));
              if (weight == 0) continue;
              const double slope = weight * (pair.Dot(0, Shapes::kGrad, grad, 3, Shapes::kValue,
                                                      at(head, Shapes::kValue, j), s.value_depth) -
                                             delta);
              AddRow<T>(c, s, 2, Shapes::kKey, key, first, columns, slope, sums);
            }
            for (int64_t e = 0; e < columns; ++e) {
              Store<T>(c->results[0].data,
                       at(head, Shapes::kGradQuery, i) + (first + e) * s.column[Shapes::kGradQuery],
                       sums[e] * s.scale);
            }
          }
        }
      });
  const int64_t group = s.extents[s.rank - 1];
  int64_t key_heads = 1;
  for (int a = 0; a + 1 < s.rank; ++a) key_heads *= s.extents[a];
  ParallelFor(
      c, key_heads * s.keys, std::max<int64_t>(1, grain / std::max<int64_t>(1, group * s.queries)),
      [&](int64_t begin, int64_t end) {
        Walk<Shapes::kAll> head = walk(s.rank - 1);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t j = r % s.keys;
          head.Start(r / s.keys);
          const AttentionRange range = s.QueriesOf(j);
          for (int64_t first = 0; first < std::max(s.depth, s.value_depth); first += kGradColumns) {
            const int64_t columns = std::clamp<int64_t>(s.depth - first, 0, kGradColumns),
                          value_columns =
                              std::clamp<int64_t>(s.value_depth - first, 0, kGradColumns);
            double by_key[kGradColumns] = {}, by_value[kGradColumns] = {};
            for (int64_t u = 0; u < group * s.queries; ++u) {
              const int64_t h = u / s.queries, i = u % s.queries;
              if (i < range.first || i >= range.last) continue;
              if (stopped(u)) break;
              const auto of = [&](Shapes::Tensor t) {
                return at(head, t, i) + h * s.strides[t][s.rank - 1];
              };
              const double weight = pair.Weight(of(Shapes::kQuery), at(head, Shapes::kKey, j),
                                                of(Shapes::kMask) + j * s.column[Shapes::kMask],
                                                of(Shapes::kLogSumExp));
              if (weight == 0) continue;
              const double delta = pair.Dot(0, Shapes::kGrad, of(Shapes::kGrad), 4, Shapes::kOutput,
                                            of(Shapes::kOutput), s.value_depth);
              const double slope =
                  weight * (pair.Dot(0, Shapes::kGrad, of(Shapes::kGrad), 3, Shapes::kValue,
                                     at(head, Shapes::kValue, j), s.value_depth) -
                            delta);
              AddRow<T>(c, s, 1, Shapes::kQuery, of(Shapes::kQuery), first, columns, slope, by_key);
              AddRow<T>(c, s, 0, Shapes::kGrad, of(Shapes::kGrad), first, value_columns, weight,
                        by_value);
            }
            for (int64_t e = 0; e < columns; ++e) {
              Store<T>(c->results[1].data,
                       at(head, Shapes::kGradKey, j) + (first + e) * s.column[Shapes::kGradKey],
                       by_key[e] * s.scale);
            }
            for (int64_t e = 0; e < value_columns; ++e) {
              Store<T>(c->results[2].data,
                       at(head, Shapes::kGradValue, j) + (first + e) * s.column[Shapes::kGradValue],
                       by_value[e]);
            }
          }
        }
      });
}

int AttentionBackward(const opw_call* c) {
  const Shapes s = Shapes::OfBackward(c);
  VisitType(TypeOf(Operand(c, 1)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) Backward<T>(c, s);
  });
  return OPW_OK;
}

}  // namespace

void AddAttentionBackwardReference(VariantTable& table) {
  AddReference(table, "scaled_dot_product_attention_backward",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, nullptr, nullptr, nullptr,
                AttentionBackward});
}

}  // namespace opwire::ops::attention

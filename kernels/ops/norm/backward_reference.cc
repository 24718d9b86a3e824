// layer_norm_backward and rms_norm_backward in f64: row by row, then column by column.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::norm {
namespace {

// In the workspace, for each row.
struct RowScale {
  double mean, factor;  // (x - mean) * factor is the normalised element
};

int64_t Trailing(const opw_call* c) {
  const opw_tensor& x = Operand(c, 1);
  return ElementsFrom(x, x.rank - static_cast<int>(c->attrs[0].value.i));
}

int PrepareScales(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes = Operand(c, 1).elements / std::max<int64_t>(1, Trailing(c)) *
                     static_cast<int64_t>(sizeof(RowScale));
  return OPW_OK;
}

template <bool kLayer>
int NormBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &x = Operand(c, 1), &weight = Operand(c, 2),
                   &residual = Operand(c, 3);
  const int64_t extent = Trailing(c), rows = x.elements / std::max<int64_t>(1, extent);
  if (extent == 0) return OPW_OK;
  RowScale* const scales = static_cast<RowScale*>(c->workspace);
  const double n = static_cast<double>(extent), eps = c->attrs[1].value.f;
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      const auto at = [](const opw_tensor& t, int64_t flat) {
        return static_cast<double>(Load<T>(t.data, OffsetOf(t, flat)));
      };
      ParallelFor(
          c, rows, std::max<int64_t>(1, kReferenceGrain / extent), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const int64_t first = row * extent;
              double mean = 0, square = 0, slope = 0, product = 0;
              if (kLayer) {
                for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) mean += at(x, first + i);
                mean /= n;
              }
              for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i)
                square += (at(x, first + i) - mean) * (at(x, first + i) - mean);
              const double factor = 1 / std::sqrt(square / n + eps);
              const auto normal = [&](int64_t i) { return (at(x, first + i) - mean) * factor; };
              const auto by_normal = [&](int64_t i) {
                return at(grad, first + i) * (Absent(weight) ? 1 : at(weight, i));
              };
              for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
                if (kLayer) slope += by_normal(i) / n;
                product += by_normal(i) * normal(i) / n;
              }
              for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
                const double beside = Absent(residual) ? 0 : at(residual, first + i);
                Store<T>(c->results[0].data, OffsetOf(c->results[0], first + i),
                         (by_normal(i) - slope - normal(i) * product) * factor + beside);
              }
              scales[row] = {mean, factor};
            }
          });
      ParallelFor(c, extent, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, rows)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      double by_weight = 0, by_bias = 0;
                      for (int64_t row = 0; row < rows && !StoppedAt(c, row); ++row) {
                        const double g = at(grad, row * extent + i);
                        by_weight +=
                            g * ((at(x, row * extent + i) - scales[row].mean) * scales[row].factor);
                        by_bias += g;
                      }
                      Store<T>(c->results[1].data, OffsetOf(c->results[1], i), by_weight);
                      if (kLayer) Store<T>(c->results[2].data, OffsetOf(c->results[2], i), by_bias);
                    }
                  });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddNormBackwardReference(VariantTable& table) {
  AddReference(
      table, "layer_norm_backward",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, PrepareScales, nullptr, NormBackward<true>});
  AddReference(
      table, "rms_norm_backward",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, PrepareScales, nullptr, NormBackward<false>});
}

}  // namespace opwire::ops::norm

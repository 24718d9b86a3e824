// layer_norm and rms_norm, of x or of x + residual, one row after the other, in f64 with two
// passes.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/norm/norm.h"

namespace opwire::ops::norm {
namespace {

template <bool kLayer, bool kResidual>
int Norm(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  constexpr int kWeight = kResidual ? 2 : 1;
  const opw_tensor& weight = Operand(c, kWeight);
  const opw_tensor& from = kResidual ? c->results[1] : x;  // the tensor that is normalised
  const opw_tensor& y = c->results[0];
  const int trailing = static_cast<int>(c->attrs[0].value.i), leading = x.rank - trailing;
  const double eps = c->attrs[1].value.f;
  if (x.elements == 0) return OPW_OK;
  int64_t extent = 1;
  for (int a = leading; a < x.rank; ++a) extent *= x.shape[a];
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(c, x.elements / extent, std::max<int64_t>(1, kReferenceGrain / extent),
                  [&](int64_t begin, int64_t end) {
                    const auto in = [&](int64_t flat) {
                      return static_cast<double>(Load<T>(from.data, OffsetOf(from, flat)));
                    };
                    const auto scale = [&](const opw_tensor& t, int64_t i) {
                      return static_cast<double>(Load<T>(t.data, OffsetOf(t, i)));
                    };
                    for (int64_t row = begin; row < end; ++row) {
                      const int64_t first = row * extent;
                      if constexpr (kResidual) {
                        const opw_tensor& residual = Operand(c, 1);
                        for (int64_t i = first; i < first + extent && !StoppedAt(c, i); ++i) {
                          Store<T>(from.data, OffsetOf(from, i),
                                   Load<T>(x.data, OffsetOf(x, i)) +
                                       Load<T>(residual.data, OffsetOf(residual, i)));
                        }
                      }
                      double mean = 0, square = 0;
                      if (kLayer) {
                        for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i)
                          mean += in(first + i);
                        mean /= static_cast<double>(extent);
                      }
                      for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i)
                        square += (in(first + i) - mean) * (in(first + i) - mean);
                      const double factor =
                          1 / std::sqrt(square / static_cast<double>(extent) + eps);
                      for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
                        double v = (in(first + i) - mean) * factor;
                        if (!Absent(weight)) v *= scale(weight, i);
                        if (kLayer && !Absent(Operand(c, kWeight + 1)))
                          v += scale(Operand(c, kWeight + 1), i);
                        Store<T>(y.data, OffsetOf(y, first + i), v);
                      }
                    }
                  });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddNormReference(VariantTable& table) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_INPLACE;
  AddReference(table, "layer_norm",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Norm<true, false>});
  AddReference(table, "rms_norm",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Norm<false, false>});
  AddReference(table, "add_layer_norm",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Norm<true, true>});
  AddReference(table, "add_rms_norm",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Norm<false, true>});
}

}  // namespace opwire::ops::norm

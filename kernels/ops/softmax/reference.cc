// softmax and log_softmax, one row after the other, in f64.
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/scalar.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops {
namespace {

template <bool kLog>
int Softmax(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  const int64_t extent = x.shape[dim], from = x.strides[dim], to = y.strides[dim];
  if (x.elements == 0) return OPW_OK;
  int64_t others[OPW_MAX_RANK];
  std::copy_n(x.shape, x.rank, others);
  others[dim] = 1;
  const int64_t rows = x.elements / extent;
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(c, rows, std::max<int64_t>(1, kReferenceGrain / extent), [&](int64_t begin, int64_t end) {
        Walk<2> walk(x.rank, others);
        for (int a = 0; a < x.rank; ++a) {
          walk.SetStride(0, a, y.strides[a]);
          walk.SetStride(1, a, x.strides[a]);
        }
        walk.Start(begin);
        for (int64_t r = begin; r < end; ++r, walk.Next()) {
          const auto in = [&](int64_t i) { return static_cast<double>(Load<T>(x.data, walk.offset(1) + i * from)); };
          double most = in(0), sum = 0;
          for (int64_t i = 1; i < extent && !StoppedAt(c, i); ++i) most = std::fmax(most, in(i));
          for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) sum += std::exp(in(i)-most);
          for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
            const double v = in(i)-most;
            Store<T>(y.data, walk.offset(0) + i * to, kLog ? v - std::log(sum) : std::exp(v) / sum);
          }
        }
      });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddSoftmaxReference(VariantTable& table) {
  AddReference(table, "softmax", {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, nullptr, nullptr, Softmax<false>});
  AddReference(table, "log_softmax", {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, nullptr, nullptr, Softmax<true>});
}

}  // namespace opwire::ops

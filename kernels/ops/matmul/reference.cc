// matmul as its definition says: one sum a result, floats in f64, integers wrapping.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"

namespace opwire::ops {
namespace {

int Matmul(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = Operand(c, 1);
  const opw_tensor& z = c->results[0];
  // The axis of x and of y that is summed over, and the other one.
  const int x_k = c->attrs[0].value.i != 0 ? x.rank - 2 : x.rank - 1, x_m = 2 * x.rank - 3 - x_k;
  const int y_k = c->attrs[1].value.i != 0 ? y.rank - 1 : y.rank - 2, y_n = 2 * y.rank - 3 - y_k;
  const int64_t k = x.shape[x_k];
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    using A = std::conditional_t<std::is_floating_point_v<C>, double, C>;
    ParallelFor(c, z.elements, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, k)), [&](int64_t begin, int64_t end) {
      Walk<3> walk(z.rank, z.shape);
      walk.SetBroadcast(0, z);
      for (const auto& [tensor, t] : {std::pair{1, &x}, std::pair{2, &y}}) {
        for (int a = 0; a < t->rank - 2; ++a) walk.SetStride(tensor, a + z.rank - t->rank, t->shape[a] == 1 ? 0 : t->strides[a]);
      }
      walk.SetStride(1, z.rank - 2, x.strides[x_m]);
      walk.SetStride(2, z.rank - 1, y.strides[y_n]);
      walk.Start(begin);
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        A sum{0};
        for (int64_t j = 0; j < k && !StoppedAt(c, j); ++j) {
          sum = Plus<A>(sum, Times<A>(Load<T>(x.data, walk.offset(1) + j * x.strides[x_k]),
                                      Load<T>(y.data, walk.offset(2) + j * y.strides[y_k])));
        }
        Store<T>(z.data, walk.offset(0), sum);
      }
    });
  });
  return OPW_OK;
}

}  // namespace

void AddMatmulReference(VariantTable& table) {
  AddReference(table, "matmul", {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Matmul});
}

}  // namespace opwire::ops

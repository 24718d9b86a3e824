// matmul and scaled_matmul as their definitions say: one sum a result, floats in f64, integers
// wrapping.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"

namespace opwire::ops::matmul {
namespace {

// z of x's elements of type T and y's of type U, each sum as `finish(sum, row, column)` leaves it,
// in R.
template <typename T, typename U, typename R, typename F>
void Multiply(const opw_call* c, const F& finish) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = Operand(c, 1);
  const opw_tensor& z = c->results[0];
  // The axis of x and of y that is summed over, and the other one.
  const int x_k = c->attrs[0].value.i != 0 ? x.rank - 2 : x.rank - 1, x_m = 2 * x.rank - 3 - x_k;
  const int y_k = c->attrs[1].value.i != 0 ? y.rank - 1 : y.rank - 2, y_n = 2 * y.rank - 3 - y_k;
  const int64_t k = x.shape[x_k], rows = z.shape[z.rank - 2], columns = z.shape[z.rank - 1];
  using C = ComputeOf<T>;
  using A = std::conditional_t<std::is_floating_point_v<C>, double, C>;
  ParallelFor(
      c, z.elements, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, k)),
      [&](int64_t begin, int64_t end) {
        Walk<3> walk(z.rank, z.shape);
        walk.SetBroadcast(0, z);
        for (const auto& [tensor, t] : {std::pair{1, &x}, std::pair{2, &y}}) {
          for (int a = 0; a < t->rank - 2; ++a)
            walk.SetStride(tensor, a + z.rank - t->rank, t->shape[a] == 1 ? 0 : t->strides[a]);
        }
        walk.SetStride(1, z.rank - 2, x.strides[x_m]);
        walk.SetStride(2, z.rank - 1, y.strides[y_n]);
        walk.Start(begin);
        for (int64_t i = begin; i < end; ++i, walk.Next()) {
          A sum{0};
          for (int64_t j = 0; j < k && !StoppedAt(c, j); ++j) {
            sum = Plus<A>(sum, Times<A>(Load<T>(x.data, walk.offset(1) + j * x.strides[x_k]),
                                        Load<U>(y.data, walk.offset(2) + j * y.strides[y_k])));
          }
          Store<R>(z.data, walk.offset(0), finish(sum, i / columns % rows, i % columns));
        }
      });
}

int Matmul(const opw_call* c) {
  VisitType(TypeOf(Operand(c, 0)), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Multiply<T, T, T>(c, [](auto sum, int64_t, int64_t) { return sum; });
  });
  return OPW_OK;
}

int ScaledMatmul(const opw_call* c) {
  const auto scale = [&](int operand, int64_t at) {
    const opw_tensor& s = Operand(c, operand);
    return static_cast<double>(Load<float>(s.data, s.rank == 0 ? 0 : at * s.strides[0]));
  };
  const auto finish = [&](double sum, int64_t row, int64_t column) {
    return sum * scale(2, row) * scale(3, column);
  };
  const auto eighth = [](DType type, const auto& f) {
    type == DType::kF8E4M3 ? f(F8E4M3()) : f(F8E5M2());
  };
  eighth(TypeOf(Operand(c, 0)), [&](auto x) {
    eighth(TypeOf(Operand(c, 1)), [&](auto y) {
      const DType type = TypeOf(c->results[0]);
      if (type == DType::kF32)
        Multiply<decltype(x), decltype(y), float>(c, finish);
      else if (type == DType::kF16)
        Multiply<decltype(x), decltype(y), F16>(c, finish);
      else
        Multiply<decltype(x), decltype(y), BF16>(c, finish);
    });
  });
  return OPW_OK;
}

}  // namespace

void AddMatmulReference(VariantTable& table) {
  AddReference(table, "matmul",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Matmul});
  AddReference(table, "scaled_matmul",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, ScaledMatmul});
}

}  // namespace opwire::ops::matmul

// softmax, log_softmax and their gradients, one row after the other, in f64.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops::softmax {
namespace {

// Calls f(tag of the type, row) for each row along dim. row(t, i) is the offset of the row's
// element i in the tensor `t` of `tensors`, which have one shape.
template <size_t kTensors, typename F>
int ForRowsAlong(const opw_call* c, const opw_tensor* const (&tensors)[kTensors], const F& f) {
  const opw_tensor& x = *tensors[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  const int64_t extent = x.shape[dim];
  if (x.elements == 0) return OPW_OK;
  int64_t others[OPW_MAX_RANK];
  std::copy_n(x.shape, x.rank, others);
  others[dim] = 1;
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(c, x.elements / extent, std::max<int64_t>(1, kReferenceGrain / extent),
                  [&](int64_t begin, int64_t end) {
                    Walk<kTensors> walk(x.rank, others);
                    for (size_t t = 0; t < kTensors; ++t) {
                      for (int a = 0; a < x.rank; ++a)
                        walk.SetStride(static_cast<int>(t), a, tensors[t]->strides[a]);
                    }
                    walk.Start(begin);
                    for (int64_t r = begin; r < end; ++r, walk.Next()) {
                      f(tag, extent, [&](int t, int64_t i) {
                        return walk.offset(t) + i * tensors[t]->strides[dim];
                      });
                    }
                  });
    }
  });
  return OPW_OK;
}

template <bool kLog>
int Softmax(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &y = c->results[0];
  return ForRowsAlong(c, {&x, &y}, [&](auto tag, int64_t extent, const auto& at) {
    using T = typename decltype(tag)::Type;
    const auto in = [&](int64_t i) { return static_cast<double>(Load<T>(x.data, at(0, i))); };
    double most = in(0), sum = 0;
    for (int64_t i = 1; i < extent && !StoppedAt(c, i); ++i) most = std::fmax(most, in(i));
    for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) sum += std::exp(in(i)-most);
    for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
      const double v = in(i)-most;
      Store<T>(y.data, at(1, i), kLog ? v - std::log(sum) : std::exp(v) / sum);
    }
  });
}

template <bool kLog>
int SoftmaxBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &y = Operand(c, 1), &grad_x = c->results[0];
  return ForRowsAlong(c, {&grad, &y, &grad_x}, [&](auto tag, int64_t extent, const auto& at) {
    using T = typename decltype(tag)::Type;
    const auto g = [&](int64_t i) { return static_cast<double>(Load<T>(grad.data, at(0, i))); };
    const auto out = [&](int64_t i) { return static_cast<double>(Load<T>(y.data, at(1, i))); };
    double sum = 0;
    for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) sum += kLog ? g(i) : g(i) * out(i);
    for (int64_t i = 0; i < extent && !StoppedAt(c, i); ++i) {
      Store<T>(grad_x.data, at(2, i), kLog ? g(i) - std::exp(out(i)) * sum : out(i) * (g(i) - sum));
    }
  });
}

}  // namespace

void AddSoftmaxReference(VariantTable& table) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_INPLACE;
  AddReference(table, "softmax",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Softmax<false>});
  AddReference(table, "log_softmax",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, Softmax<true>});
  AddReference(table, "softmax_backward",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, SoftmaxBackward<false>});
  AddReference(table, "log_softmax_backward",
               {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, SoftmaxBackward<true>});
}

}  // namespace opwire::ops::softmax

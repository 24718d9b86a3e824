// Rows that reduce axes, or sort them.
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sum.h>

#include "kernels/torch/module/call.h"

namespace opwire::torch_module {
namespace {

// No axes: all of them.
std::vector<int64_t> Axes(const Call& call, const at::Tensor& x) {
  std::vector<int64_t> axes = call.Ints(0).vec();
  for (int64_t a = 0; axes.size() < static_cast<size_t>(x.dim()) && call.Ints(0).empty(); ++a)
    axes.push_back(a);
  return axes;
}

void Sum(const Call& call) {
  at::Tensor y = call.Out(0, As::kSigned);
  const at::Tensor x = call.In(0, As::kSigned);
  at::sum_out(y, x, Axes(call, x), call.Bool(1), x.scalar_type());
}

void Mean(const Call& call) {
  at::Tensor y = call.Out();
  const at::Tensor x = call.In(0);
  at::mean_out(y, x, Axes(call, x), call.Bool(1));
}

void Prod(const Call& call) {
  const at::Tensor x = Wide(call.In(0, As::kSigned)), y = call.Out(0, As::kSigned);
  const std::vector<int64_t> axes = Axes(call, x);
  const at::Tensor product = axes.size() == 1 ? at::prod(x, axes[0], false, x.scalar_type())
                                              : at::prod(x, x.scalar_type());
  y.copy_(product.reshape(y.sizes()));
}

template <at::Tensor& (*kOut)(at::Tensor&, const at::Tensor&, at::IntArrayRef, bool)>
void Extreme(const Call& call) {
  at::Tensor y = call.Out();
  const at::Tensor x = call.In(0);
  kOut(y, x, Axes(call, x), call.Bool(1));
}

template <at::Tensor (*kReduce)(const at::Tensor&, at::OptionalIntArrayRef, bool)>
void Logical(const Call& call) {
  const at::Tensor x = call.In(0);
  const std::vector<int64_t> axes = Axes(call, x);
  call.Out().copy_(kReduce(x, at::OptionalIntArrayRef(axes), call.Bool(1)));
}

template <at::Tensor& (*kOut)(at::Tensor&, const at::Tensor&, std::optional<int64_t>, bool)>
void Argument(const Call& call) {
  at::Tensor y = call.Out();
  kOut(y, call.In(0), call.Int(0), call.Bool(1));
}

// For 16-bit floats ATen's GPU kernel rounds each sum.
void CumSum(const Call& call) {
  const at::Tensor x = Wide(call.In(0, As::kSigned));
  call.Out(0, As::kSigned).copy_(at::cumsum(x, call.Int(0), x.scalar_type()));
}

void Sort(const Call& call) {
  at::Tensor values = call.Out(0), indices = call.Out(1);
  at::sort_out(values, indices, call.In(0), true, call.Int(0), call.Bool(1));
}

void ArgSort(const Call& call) {
  call.Out().copy_(at::argsort(call.In(0), true, call.Int(0), call.Bool(1)));
}

}  // namespace

const Row kReduceRows[] = {{"sum", Sum},
                           {"mean", Mean},
                           {"prod", Prod},
                           {"amax", Extreme<at::amax_out>},
                           {"amin", Extreme<at::amin_out>},
                           {"any", Logical<at::any>},
                           {"all", Logical<at::all>},
                           {"argmax", Argument<at::argmax_out>},
                           {"argmin", Argument<at::argmin_out>},
                           {"cumsum", CumSum},
                           {"sort", Sort},
                           {"argsort", ArgSort},
                           {nullptr, nullptr}};

}  // namespace opwire::torch_module

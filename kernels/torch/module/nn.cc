// Softmax, norms, matrix products, convolution, attention and losses. Where ATen's op has another
// meaning, or keeps 16-bit floats between its steps, the row is composed of ops that do not.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/torch/module/call.h"

namespace opwire::torch_module {
namespace {

// ---- softmax

void Softmax(const Call& call) {
  call.Out().copy_(at::_softmax(Wide(call.In(0)), call.Int(0), false));
}
void LogSoftmax(const Call& call) {
  call.Out().copy_(at::_log_softmax(Wide(call.In(0)), call.Int(0), false));
}
void SoftmaxBackward(const Call& call) {
  const at::Tensor grad = Wide(call.In(0));
  call.Out().copy_(
      at::_softmax_backward_data(grad, Wide(call.In(1)), call.Int(0), grad.scalar_type()));
}
void LogSoftmaxBackward(const Call& call) {
  const at::Tensor grad = Wide(call.In(0));
  call.Out().copy_(
      at::_log_softmax_backward_data(grad, Wide(call.In(1)), call.Int(0), grad.scalar_type()));
}

// ---- norms, over the trailing axes that attribute 0 counts

at::IntArrayRef Trailing(const Call& call, const at::Tensor& x) {
  return x.sizes().slice(static_cast<size_t>(x.dim() - call.Int(0)));
}

std::vector<int64_t> TrailingAxes(const Call& call) {
  std::vector<int64_t> axes;
  for (int64_t a = -call.Int(0); a < 0; ++a) axes.push_back(a);
  return axes;
}

at::Tensor LayerNormOf(const Call& call, const at::Tensor& x, int weight) {
  return std::get<0>(at::native_layer_norm(Wide(x), Trailing(call, x), Wide(call.In(weight)),
                                           Wide(call.In(weight + 1)), call.Float(1)));
}

at::Tensor InverseRms(const Call& call, const at::Tensor& x) {
  return x.square().mean(TrailingAxes(call), /*keepdim=*/true).add(call.Float(1)).rsqrt();
}

at::Tensor RmsNormOf(const Call& call, const at::Tensor& narrow, int weight) {
  const at::Tensor x = Wide(narrow), scale = Wide(call.In(weight));
  const at::Tensor y = x.mul(InverseRms(call, x));
  return scale.defined() ? y.mul(scale) : y;
}

void LayerNorm(const Call& call) { call.Out().copy_(LayerNormOf(call, call.In(0), 1)); }
void RmsNorm(const Call& call) { call.Out().copy_(RmsNormOf(call, call.In(0), 1)); }

at::Tensor Added(const Call& call) {
  at::Tensor sum = call.Out(1);
  at::add_out(sum, call.In(0), call.In(1));
  return sum;
}
void AddLayerNorm(const Call& call) { call.Out().copy_(LayerNormOf(call, Added(call), 2)); }
void AddRmsNorm(const Call& call) { call.Out().copy_(RmsNormOf(call, Added(call), 2)); }

// Of the gradients of norms.
at::Tensor WithResidual(const Call& call, const at::Tensor& grad_x) {
  const at::Tensor residual = Wide(call.In(3));
  return residual.defined() ? grad_x.add(residual) : grad_x;
}

void LayerNormBackward(const Call& call) {
  const at::Tensor grad = Wide(call.In(0)), x = Wide(call.In(1)), weight = Wide(call.In(2));
  const at::IntArrayRef trailing = Trailing(call, x);
  const auto [y, mean, deviation] = at::native_layer_norm(x, trailing, weight, {}, call.Float(1));
  // Without a weight or a bias ATen makes no gradients of them, so they are ones that change
  // nothing.
  const at::Tensor ones = weight.defined() ? weight : at::ones(trailing, x.options()),
                   zeros = at::zeros(trailing, x.options());
  const auto [grad_x, grad_weight, grad_bias] = at::native_layer_norm_backward(
      grad, x, trailing, mean, deviation, ones, zeros, {true, true, true});
  call.Out(0).copy_(WithResidual(call, grad_x));
  call.Out(1).copy_(grad_weight);
  call.Out(2).copy_(grad_bias);
}

void RmsNormBackward(const Call& call) {
  const at::Tensor grad = Wide(call.In(0)), x = Wide(call.In(1)), weight = Wide(call.In(2));
  const at::Tensor inverse = InverseRms(call, x), n = x.mul(inverse),
                   g = weight.defined() ? grad.mul(weight) : grad;
  call.Out(0).copy_(
      WithResidual(call, g.sub(n.mul(g.mul(n).mean(TrailingAxes(call), true))).mul(inverse)));
  call.Out(1).copy_(grad.mul(n).sum_to_size(Trailing(call, x)));
}

// ---- matrix products

void MatMul(const Call& call) {
  const at::Tensor x = call.In(0, As::kSigned), y = call.In(1, As::kSigned);
  at::Tensor z = call.Out(0, As::kSigned);
  at::matmul_out(z, call.Bool(0) ? x.mT() : x, call.Bool(1) ? y.mT() : y);
}

// In f32, so that bias and activation are of sums that are not rounded.
at::Tensor LinearOf(const Call& call, const at::Tensor& x, int weight, int activation) {
  const at::Tensor bias = Wide(call.In(weight + 1));
  at::Tensor y = at::matmul(x, Wide(call.In(weight)).t());
  if (bias.defined()) y = y.add(bias);
  const std::string_view name = call.Text(activation);
  return name == "relu"        ? y.relu()
         : name == "gelu"      ? at::gelu(y)
         : name == "gelu_tanh" ? at::gelu(y, "tanh")
         : name == "silu"      ? at::silu(y)
                               : y;
}

void Linear(const Call& call) { call.Out().copy_(LinearOf(call, Wide(call.In(0)), 1, 0)); }

void RmsNormLinear(const Call& call) {
  const at::Tensor x = Wide(call.In(0)), scale = Wide(call.In(1));
  at::Tensor normal = x.mul(x.square().mean({-1}, /*keepdim=*/true).add(call.Float(0)).rsqrt());
  if (scale.defined()) normal = normal.mul(scale);
  call.Out().copy_(LinearOf(call, normal, 2, 1));
}

// ---- convolution, of f32 at least

// The attributes in ATen's form, a number for each spatial axis.
struct Sliding {
  explicit Sliding(const Call& call, int64_t axes)
      : stride(Along(call, 0, axes, 1)),
        padding(Along(call, 1, axes, 0)),
        dilation(Along(call, 2, axes, 1)),
        output_padding(Along(call, 4, axes, 0)),
        transposed(call.Bool(3)),
        groups(call.Int(5)) {}
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;

 private:
  static std::vector<int64_t> Along(const Call& call, int attr, int64_t axes, int64_t none) {
    const at::IntArrayRef given = call.Ints(attr);
    return given.size() > 1
               ? given.vec()
               : std::vector<int64_t>(static_cast<size_t>(axes), given.empty() ? none : given[0]);
  }
};

void Convolution(const Call& call) {
  at::Tensor y = call.Out();
  const at::Tensor input = Wide(call.In(0)), weight = Wide(call.In(1)), bias = Wide(call.In(2));
  if (input.numel() == 0 || weight.numel() == 0) {  // ATen refuses some of these
    if (bias.defined())
      y.transpose(1, -1).copy_(bias);
    else
      y.zero_();
    return;
  }
  const Sliding s(call, input.dim() - 2);
  y.copy_(at::convolution(input, weight, bias, s.stride, s.padding, s.dilation, s.transposed,
                          s.output_padding, s.groups));
}

void ConvolutionBackward(const Call& call) {
  const at::Tensor grad = Wide(call.In(0)), input = Wide(call.In(1)), weight = Wide(call.In(2));
  if (grad.numel() == 0 || input.numel() == 0 || weight.numel() == 0) {
    call.Out(0).zero_();
    call.Out(1).zero_();
    return;
  }
  const Sliding s(call, input.dim() - 2);
  const auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(grad, input, weight, {}, s.stride, s.padding, s.dilation,
                               s.transposed, s.output_padding, s.groups, {true, true, false});
  call.Out(0).copy_(grad_input);
  call.Out(1).copy_(grad_weight);
}

// ---- attention: by scores in memory, as ATen's has another causal mask and makes NaN of queries
// without keys

// Where the query at i does not see the key at j.
at::Tensor Bounds(const Call& call, int64_t queries, int64_t keys,
                  const at::TensorOptions& options) {
  const bool causal = call.Bool(0);
  const int64_t window = call.Int(1), offset = keys - queries;
  const at::TensorOptions integers = options.dtype(at::kLong);
  const at::Tensor i = at::arange(queries, integers).add(offset).unsqueeze(1),
                   j = at::arange(keys, integers);
  at::Tensor hidden = at::zeros({queries, keys}, options.dtype(at::kBool));
  if (causal) hidden = hidden.logical_or(j.gt(i));
  if (window > 0 && window < keys + queries) hidden = hidden.logical_or(j.le(i.sub(window)));
  return hidden;
}

void Attention(const Call& call) {
  const at::Tensor output = call.Out(0), logsumexp = call.Out(1);
  at::Tensor query = Wide(call.In(0)), key = Wide(call.In(1)), value = Wide(call.In(2));
  const double infinity = std::numeric_limits<double>::infinity();
  if (logsumexp.numel() == 0) return;
  const int64_t rank = query.dim(), queries = query.size(-2), keys = key.size(-2),
                heads = query.size(-3), groups = key.size(-3);
  if (keys == 0) {
    output.zero_();
    logsumexp.fill_(-infinity);
    return;
  }
  // Heads of query by those of key that they meet.
  const auto grouped = [&](const at::Tensor& t) {
    return t.unflatten(rank - 3, at::IntArrayRef({groups, heads / groups}));
  };
  query = grouped(query);
  key = key.unsqueeze(rank - 2);
  value = value.unsqueeze(rank - 2);
  const double given = call.Float(2),
               scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  at::Tensor scores = at::matmul(query, key.mT()).mul(scale);
  if (const at::Tensor mask = call.In(3); mask.defined()) {
    std::vector<int64_t> sizes = output.sizes().vec();
    sizes.back() = keys;
    const at::Tensor whole = grouped(mask.expand(sizes));
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(whole.logical_not(), -infinity)
                                             : scores.add(whole);
  }
  if (call.Bool(0) || call.Int(1) > 0)
    scores = scores.masked_fill(Bounds(call, queries, keys, scores.options()), -infinity);
  const at::Tensor sums = at::logsumexp(scores, {-1}, /*keepdim=*/true);
  const at::Tensor without = sums.eq(-infinity);
  const at::Tensor weights = scores.sub(sums.masked_fill(without, 0)).exp();
  output.copy_(at::matmul(weights, value).flatten(rank - 3, rank - 2));
  logsumexp.copy_(sums.squeeze(-1).flatten(rank - 3, rank - 2));
}

// ---- losses of logits [N, C]

// log_softmax(logits), and which rows have a loss: those whose target is bad, which is reported, or
// ignored have none. A mean is over those not ignored.
struct Loss {
  at::Tensor logs;     // [N, C]
  at::Tensor target;   // [N, 1], i64 in [0, C)
  at::Tensor counts;   // [N], of the logits' computing type: 1 or 0
  at::Tensor divisor;  // 0-d: the divisor of the reduction
};

Loss LossOf(const Call& call, const at::Tensor& x, int target) {
  const at::Tensor read = call.In(target).to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor ignored = read.eq(call.Int(1));
  const at::Tensor bad =
      read.lt(0).logical_or(read.ge(x.size(1))).logical_and(ignored.logical_not());
  Report(call, target, bad);
  const at::Tensor counts = bad.logical_or(ignored).logical_not();
  Loss out{at::_log_softmax(x, 1, false),
           read.masked_fill(counts.logical_not(), 0).unsqueeze(1),
           counts.to(x.scalar_type()),
           {}};
  out.divisor = call.Text(0) == "mean" ? ignored.logical_not().sum(x.scalar_type())
                                       : at::ones({}, x.options());
  return out;
}

// Reduces the losses of rows to the result.
at::Tensor Reduced(const Call& call, const Loss& loss) {
  const at::Tensor each =
      loss.logs.gather(1, loss.target).squeeze(1).neg().masked_fill(loss.counts.eq(0), 0);
  return call.Text(0) == "none" ? each : each.sum().div(loss.divisor);
}
// The gradient of the loss by its logits, from exponentials of `logs`.
at::Tensor ByLogits(const Call& call, const Loss& loss, const at::Tensor& logs) {
  const at::Tensor grad =
      Wide(call.In(0)).div(loss.divisor).expand({loss.counts.size(0)}).unsqueeze(1);
  at::Tensor d = logs.exp();
  if (d.numel() > 0) d.scatter_add_(1, loss.target, at::full_like(loss.target, -1, d.options()));
  return d.mul(grad).masked_fill(loss.counts.eq(0).unsqueeze(1), 0);
}

void CrossEntropy(const Call& call) {
  const at::Tensor y = call.Out();
  y.copy_(Reduced(call, LossOf(call, Wide(call.In(0)), 1)));
}

void CrossEntropyBackward(const Call& call) {
  const at::Tensor y = call.Out();
  const Loss loss = LossOf(call, Wide(call.In(1)), 2);
  y.copy_(ByLogits(call, loss, loss.logs));
}

void CrossEntropyWithGradient(const Call& call) {
  const at::Tensor y = call.Out(0), by_logits = call.Out(1);
  const Loss loss = LossOf(call, Wide(call.In(1)), 2);
  y.copy_(Reduced(call, loss));
  by_logits.copy_(ByLogits(call, loss, loss.logs));
}

void LinearCrossEntropy(const Call& call) {
  const at::Tensor y = call.Out(0), log_sums = call.Out(1);
  const at::Tensor logits = at::matmul(Wide(call.In(0)), Wide(call.In(1)).t());
  y.copy_(Reduced(call, LossOf(call, logits, 2)));
  log_sums.copy_(at::logsumexp(logits, {1}));
}

void LinearCrossEntropyBackward(const Call& call) {
  const at::Tensor by_input = call.Out(0), by_weight = call.Out(1), input = Wide(call.In(1)),
                   weight = Wide(call.In(2));
  const at::Tensor logits = at::matmul(input, weight.t());
  const at::Tensor d = ByLogits(call, LossOf(call, logits, 3), logits.sub(call.In(4).unsqueeze(1)));
  by_input.copy_(at::matmul(d, weight));
  by_weight.copy_(at::matmul(d.t(), input));
}

}  // namespace

const Row kNnRows[] = {{"softmax", Softmax},
                       {"log_softmax", LogSoftmax},
                       {"softmax_backward", SoftmaxBackward},
                       {"log_softmax_backward", LogSoftmaxBackward},
                       {"layer_norm", LayerNorm},
                       {"rms_norm", RmsNorm},
                       {"add_layer_norm", AddLayerNorm},
                       {"add_rms_norm", AddRmsNorm},
                       {"layer_norm_backward", LayerNormBackward},
                       {"rms_norm_backward", RmsNormBackward},
                       {"matmul", MatMul},
                       {"convolution", Convolution},
                       {"convolution_backward", ConvolutionBackward},
                       {"linear", Linear},
                       {"rms_norm_linear", RmsNormLinear},
                       {"scaled_dot_product_attention", Attention},
                       {"cross_entropy", CrossEntropy},
                       {"cross_entropy_backward", CrossEntropyBackward},
                       {"cross_entropy_with_gradient", CrossEntropyWithGradient},
                       {"linear_cross_entropy", LinearCrossEntropy},
                       {"linear_cross_entropy_backward", LinearCrossEntropyBackward},
                       {nullptr, nullptr}};

}  // namespace opwire::torch_module

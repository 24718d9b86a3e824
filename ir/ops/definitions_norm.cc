// Softmax and normalisation, and their gradients.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

Status InferSoftmax(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim").status());
  return SameAsFirst(c);
}

Status InferSoftmaxBackward(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, c.In(1).shape, "shapes of grad and y"));
  return InferSoftmax(c);
}

// Of the trailing axes of operand x: the operands from `first` to `last`, where present, have their
// shape, which is returned.
StatusOr<std::vector<Dim>> InferTrailing(InferContext& c, int x, int first, int last) {
  const int64_t trailing = c.Attr<int64_t>(0), rank = c.In(x).rank();
  if (trailing < 1 || trailing > rank) {
    return c.Error(fmt::format("dims: expected 1 to {} trailing axes for {}, got {}", rank,
                               c.Print(c.In(x)), trailing));
  }
  if (!(c.Attr<double>(1) >= 0))
    return c.Error(fmt::format("eps: expected 0 or more, got {}", c.Attr<double>(1)));
  const std::span<const Dim> tail = std::span(c.In(x).shape).last(trailing);
  for (int i = first; i <= last; ++i) {
    if (c.Operand(i) == nullptr) continue;
    OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(tail, c.In(i).shape, "normalised extents"));
  }
  return std::vector<Dim>(tail.begin(), tail.end());
}

// weight, and with `scales` 2 bias, follow x.
Status InferNorm(InferContext& c, int scales) {
  OPWIRE_RETURN_IF_ERROR(InferTrailing(c, 0, 1, scales).status());
  return SameAsFirst(c);
}

// The same behind x and residual.
Status InferAddNorm(InferContext& c, int scales) {
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, c.In(1).shape, "shapes of x and residual"));
  OPWIRE_RETURN_IF_ERROR(InferTrailing(c, 0, 2, scales + 1).status());
  c.Result(1).shape = c.In(0).shape;
  return SameAsFirst(c);
}

// grad, x, weight, residual; the gradients of x and, by result, of what has the trailing shape.
Status InferNormBackward(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, c.In(1).shape, "shapes of grad and x"));
  if (c.Operand(3) != nullptr)
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqualShapes(c.In(1).shape, c.In(3).shape, "shapes of x and residual"));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Dim> tail, InferTrailing(c, 1, 2, 2));
  for (size_t i = 1; i < c.results().size(); ++i) c.results()[i].shape = tail;
  return SameAsFirst(c);
}

}  // namespace

std::vector<OpDef> NormOps() {
  const AttrSpec axis = Optional("dim", Int(-1), "The axis.");
  const AttrSpec trailing =
      Optional("dims", Int(1), "How many trailing axes are normalised together.");
  const AttrSpec eps = Optional("eps", 1e-5, "Added to the mean square.");
  return {
      Make({.name = "softmax",
            .signature = "x: F -> y: F",
            .attrs = {axis},
            .infer = InferSoftmax,
            .cost = PerResult(5),
            .family = "softmax",
            .doc = "exp(x - max) over its sum along an axis."}),
      Make({.name = "log_softmax",
            .signature = "x: F -> y: F",
            .attrs = {axis},
            .infer = InferSoftmax,
            .cost = PerResult(5),
            .family = "softmax",
            .doc = "x - max - log(sum(exp(x - max))) along an axis."}),
      Make({.name = "softmax_backward",
            .signature = "grad: F, y: F -> grad_x: F",
            .attrs = {axis},
            .infer = InferSoftmaxBackward,
            .cost = PerResult(4),
            .family = "softmax",
            .doc = "The gradient of y = softmax(x) by x times grad, which has y's shape: y * (grad "
                   "- sum(grad * y)) along an axis."}),
      Make({.name = "log_softmax_backward",
            .signature = "grad: F, y: F -> grad_x: F",
            .attrs = {axis},
            .infer = InferSoftmaxBackward,
            .cost = PerResult(6),
            .family = "softmax",
            .doc = "The gradient of y = log_softmax(x) by x times grad, which has y's shape: grad "
                   "- exp(y) * sum(grad) along an axis."}),
      Make({.name = "layer_norm",
            .signature = "x: F, weight?: F, bias?: F -> y: F",
            .attrs = {trailing, eps},
            .infer = [](InferContext& c) { return InferNorm(c, 2); },
            .cost = PerResult(8),
            .family = "norm",
            .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes, by "
                   "the biased variance."}),
      Make({.name = "rms_norm",
            .signature = "x: F, weight?: F -> y: F",
            .attrs = {trailing, eps},
            .infer = [](InferContext& c) { return InferNorm(c, 1); },
            .cost = PerResult(4),
            .family = "norm",
            .doc = "x / sqrt(mean(x*x) + eps) * weight over the trailing axes."}),
      Make({.name = "add_layer_norm",
            .signature = "x: F, residual: F, weight?: F, bias?: F -> y: F, sum: F",
            .attrs = {trailing, eps},
            .infer = [](InferContext& c) { return InferAddNorm(c, 2); },
            .cost = PerResult(9),
            .family = "norm",
            .doc = "layer_norm of sum, and sum = x + residual, which is rounded to the element "
                   "type before it is normalised. x and residual have "
                   "one shape."}),
      Make({.name = "add_rms_norm",
            .signature = "x: F, residual: F, weight?: F -> y: F, sum: F",
            .attrs = {trailing, eps},
            .infer = [](InferContext& c) { return InferAddNorm(c, 1); },
            .cost = PerResult(5),
            .family = "norm",
            .doc = "rms_norm of sum, and sum = x + residual, which is rounded to the element type "
                   "before it is normalised. x and residual have one "
                   "shape."}),
      Make(
          {.name = "layer_norm_backward",
           .signature =
               "grad: F, x: F, weight?: F, residual?: F -> grad_x: F, grad_weight: F, grad_bias: F",
           .attrs = {trailing, eps},
           .infer = InferNormBackward,
           .cost = PerResult(20),
           .family = "norm",
           .doc =
               "The gradients of layer_norm(x, weight, bias) times grad, which has its shape. With "
               "n = (x - mean) / sqrt(variance + eps) and g = grad * weight: grad_x = (g - mean(g) "
               "- n * mean(g * n)) / sqrt(variance + eps). grad_weight and grad_bias, of the "
               "trailing shape, are the sums of grad * n and of grad over the rows, in a fixed "
               "order. An absent weight is 1. residual, of x's shape, is another gradient of x. It "
               "is added to grad_x, before or after that is rounded to the element type."}),
      Make({.name = "rms_norm_backward",
            .signature = "grad: F, x: F, weight?: F, residual?: F -> grad_x: F, grad_weight: F",
            .attrs = {trailing, eps},
            .infer = InferNormBackward,
            .cost = PerResult(14),
            .family = "norm",
            .doc = "The gradients of rms_norm(x, weight) times grad, which has its shape. With n = "
                   "x / sqrt(mean(x*x) + eps) and g = grad * weight: grad_x = (g - n * mean(g * "
                   "n)) / sqrt(mean(x*x) + eps). grad_weight, of the trailing shape, is the sum of "
                   "grad * n over the rows, in a fixed order. An absent weight is 1. residual as "
                   "layer_norm_backward's."}),
  };
}

}  // namespace opwire::definitions

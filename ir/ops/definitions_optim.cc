// Optimisers: steps over lists of parameters, gradients and states; norms and scaling of lists.
#include <fmt/format.h>

#include <cmath>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

// A 0-d operand, if it is given.
Status RequireScalar(InferContext& c, int operand) {
  return c.Operand(operand) == nullptr ? absl::OkStatus() : c.RequireRank(operand, 0);
}

// Operands are the lists named, of parameters, gradients and states, and 0-d ones up to `last`.
// Lists are equally long, with tensors of equal shapes place by place; but with `stateless` the
// states' are empty. Results are the new parameters and states.
Status InferStep(InferContext& c, const std::vector<std::string_view>& lists, int last,
                 bool stateless = false) {
  const int count = static_cast<int>(lists.size());
  const std::span<const TensorType* const> params = c.List(0);
  const size_t places = params.size();
  for (int l = 1; l < count; ++l) {
    const std::span<const TensorType* const> list = c.List(l);
    if (l >= 2 && stateless && list.empty()) continue;
    if (list.size() != places)
      return c.Error(fmt::format("lists: expected {} tensors in each, as in params, got {} in {}",
                                 places, list.size(), lists[l]));
    for (size_t k = 0; k < places; ++k) {
      OPWIRE_RETURN_IF_ERROR(
          c.RequireEqualShapes(params[k]->shape, list[k]->shape,
                               fmt::format("shapes of params and {}, place {},", lists[l], k)));
    }
    if (l < 2 || list[0]->dtype == params[0]->dtype) continue;
    const DType own = params[0]->dtype;
    const bool widens =
        list[0]->dtype == DType::kF32 && (own == DType::kF16 || own == DType::kBF16);
    if (!widens) {
      return c.Error(fmt::format("operand {}: expected {}{} for params of {}, got {}", lists[l],
                                 DTypeName(own),
                                 own == DType::kF16 || own == DType::kBF16 ? " or f32" : "",
                                 DTypeName(own), c.Print(*list[0])));
    }
  }
  for (int i = count; i <= last; ++i) OPWIRE_RETURN_IF_ERROR(RequireScalar(c, i));
  for (int r = 0; r < count - 1; ++r) {
    const std::span<TensorType> results = c.ResultList(r);
    for (size_t k = 0; k < results.size(); ++k) results[k].shape = params[k]->shape;
  }
  return absl::OkStatus();
}

// Attribute i of `name` is in [0, 1).
Status RequireRate(InferContext& c, int i, std::string_view name) {
  const double rate = c.Attr<double>(i);
  if (rate >= 0 && rate < 1) return absl::OkStatus();
  return c.Error(fmt::format("{}: expected 0 or more and less than 1, got {}", name, rate));
}
Status RequireNotNegative(InferContext& c, int i, std::string_view name) {
  const double v = c.Attr<double>(i);
  if (v >= 0 && std::isfinite(v)) return absl::OkStatus();
  return c.Error(fmt::format("{}: expected a finite number, 0 or more, got {}", name, v));
}

Status InferAdamw(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 0, "beta1"));
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 1, "beta2"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 2, "eps"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 3, "weight_decay"));
  return InferStep(c, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, 7);
}

Status InferAdamwCopy(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(InferAdamw(c));
  const DType type = c.Attr<DType>(7);
  if (!kFloats.Has(type))
    return c.Error(fmt::format("dtype: expected f64, f32, f16 or bf16, got {}", DTypeName(type)));
  for (size_t k = 0; k < c.List(0).size(); ++k) {
    c.ResultList(3)[k].dtype = type;
    c.ResultList(3)[k].shape = c.List(0)[k]->shape;
  }
  return absl::OkStatus();
}

Status InferLamb(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 0, "beta1"));
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 1, "beta2"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 2, "eps"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 3, "weight_decay"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 4, "min_coefficient"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 5, "max_coefficient"));
  if (c.Attr<double>(4) > c.Attr<double>(5))
    return c.Error(
        fmt::format("max_coefficient: expected {} or more, as min_coefficient is, got {}",
                    c.Attr<double>(4), c.Attr<double>(5)));
  OPWIRE_RETURN_IF_ERROR(InferStep(c, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, 7));
  c.Result(3).dtype = c.List(0)[0]->dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  c.Result(3).shape = {c.dims().Constant(static_cast<int64_t>(c.List(0).size()))};
  return absl::OkStatus();
}

Status InferSgd(InferContext& c) {
  const double momentum = c.Attr<double>(0), dampening = c.Attr<double>(1);
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 0, "momentum"));
  if (!std::isfinite(dampening))
    return c.Error(fmt::format("dampening: expected a finite number, got {}", dampening));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 3, "weight_decay"));
  if (c.Attr<bool>(2) && (momentum == 0 || dampening != 0))
    return c.Error("nesterov: expected a momentum and no dampening");
  if (momentum == 0 && !c.List(2).empty())
    return c.Error(fmt::format("momentum_buffers: expected none for a momentum of 0, got {}",
                               c.List(2).size()));
  return InferStep(c, {"params", "grads", "momentum_buffers"}, 6, /*stateless=*/momentum == 0);
}

Status InferLion(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 0, "beta1"));
  OPWIRE_RETURN_IF_ERROR(RequireRate(c, 1, "beta2"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 2, "weight_decay"));
  return InferStep(c, {"params", "grads", "exp_avgs"}, 5);
}

Status InferAdagrad(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 0, "eps"));
  OPWIRE_RETURN_IF_ERROR(RequireNotNegative(c, 1, "weight_decay"));
  return InferStep(c, {"params", "grads", "state_sums"}, 5);
}

Status InferL2Norm(InferContext& c) {
  if (c.List(0).empty()) return c.Error("xs: expected a tensor at least");
  const DType sum = c.List(0)[0]->dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  c.Result(0).dtype = c.Result(1).dtype = sum;
  c.Result(1).shape = {c.dims().Constant(static_cast<int64_t>(c.List(0).size()))};
  return absl::OkStatus();
}

Status InferScale(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireScalar(c, 1));
  for (size_t k = 0; k < c.List(0).size(); ++k) c.ResultList(0)[k].shape = c.List(0)[k]->shape;
  return absl::OkStatus();
}

// `flops` for each element of all operands.
CostRule PerOperands(double flops) {
  return [flops](const CostArgs& a) {
    double elements = 0;
    for (const Shape& s : a.operands) elements += Elements(s);
    return OpCost{flops * elements, TrafficBytes(a)};
  };
}

}  // namespace

std::vector<OpDef> OptimOps() {
  const AttrSpec maximize = Optional("maximize", false, "Goes up the gradient.");
  const std::vector<AttrSpec> adamw = {
      Optional("beta1", 0.9, "What the mean of gradients keeps of itself in a step."),
      Optional("beta2", 0.999, "The same for the mean of their squares."),
      Optional("eps", 1e-8, "Added to the denominator."),
      Optional("weight_decay", 0.01, "How fast parameters shrink."),
      Optional("decoupled", true,
               "AdamW: parameters shrink directly; else weight_decay times the parameter is "
               "added to the gradient (Adam)."),
      Optional("bias_correction", true, "Means are divided by 1 - beta^step."),
      maximize};
  std::vector<AttrSpec> copying = adamw;
  copying.push_back(Optional("dtype", DType::kBF16, "The copies' element type."));
  const AttrSpec added =
      Optional("weight_decay", 0.0, "Times the parameter, added to the gradient.");
  return {
      Make({.name = "adamw",
            .signature = "params...: F, grads...: F, exp_avgs...: G, exp_avg_sqs...: G, lr: f32, "
                         "step: i64, grad_scale?: f32, skip?: bool "
                         "-> params...: F, exp_avgs...: G, exp_avg_sqs...: G",
            .attrs = adamw,
            .infer = InferAdamw,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(5),
            .family = "optim",
            .doc = "A step of torch.optim.AdamW, or Adam, over lists of tensors of equal shapes "
                   "place by place. g = grad / grad_scale; p = p (1 - lr weight_decay); "
                   "m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; p = p - lr / (1 - "
                   "beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + eps). "
                   "lr, step (from 1), grad_scale and skip are 0-d; where skip is true everything "
                   "is returned as it was. States have the parameters' "
                   "type, or f32 beside f16 and bf16; math is in f32, of f64 in f64. The "
                   "reciprocal of grad_scale is what multiplies."}),
      Make({.name = "adamw_copy",
            .signature = "params...: F, grads...: F, exp_avgs...: G, exp_avg_sqs...: G, lr: f32, "
                         "step: i64, grad_scale?: f32, skip?: bool "
                         "-> params...: F, exp_avgs...: G, exp_avg_sqs...: G, copies...: U",
            .attrs = copying,
            .infer = InferAdamwCopy,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(5),
            .family = "optim",
            .doc = "adamw, and the new parameters cast to dtype: what the next forward pass reads, "
                   "where parameters are kept in a wider type."}),
      Make({.name = "sgd",
            .signature = "params...: F, grads...: F, momentum_buffers...: G, lr: f32, step: i64, "
                         "grad_scale?: f32, skip?: bool "
                         "-> params...: F, momentum_buffers...: G",
            .attrs =
                {Optional("momentum", 0.0,
                          "What a buffer keeps of itself in a step; 0: there are no buffers, their "
                          "list is empty."),
                 Optional("dampening", 0.0, "1 - dampening of the gradient goes into the buffer."),
                 Optional(
                     "nesterov", false,
                     "The gradient and momentum times the buffer are what moves; else the buffer."),
                 added, maximize},
            .infer = InferSgd,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(3),
            .family = "optim",
            .doc = "A step of torch.optim.SGD for lists of tensors; tensors at the same place of "
                   "the lists have equal shapes. g = grad / grad_scale + weight_decay p. b = "
                   "momentum b + (1 - dampening) g, but in step 1 b = g. Then p = p - lr b; with "
                   "nesterov p = p - lr (g + momentum b); without momentum p = p - lr g. The 0-d "
                   "operands, types and math are adamw's."}),
      Make({.name = "lion",
            .signature = "params...: F, grads...: F, exp_avgs...: G, lr: f32, grad_scale?: f32, "
                         "skip?: bool -> params...: F, exp_avgs...: G",
            .attrs = {Optional("beta1", 0.9,
                               "What the mean of gradients counts for in the step's direction."),
                      Optional("beta2", 0.99, "What it keeps of itself in a step."),
                      Optional("weight_decay", 0.0, "How fast parameters shrink."), maximize},
            .infer = InferLion,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(3),
            .family = "optim",
            .doc = "A step of Lion over lists of tensors of equal shapes place by place. g = grad "
                   "/ grad_scale; c = beta1 m + (1 - beta1) g; "
                   "p = p (1 - lr weight_decay) - lr sign(c), sign(0) is 0; m = beta2 m + (1 - "
                   "beta2) g. The 0-d operands, types and math are adamw's."}),
      Make({.name = "adagrad",
            .signature = "params...: F, grads...: F, state_sums...: G, lr: f32, grad_scale?: f32, "
                         "skip?: bool -> params...: F, state_sums...: G",
            .attrs = {Optional("eps", 1e-10, "Added to the denominator."), added, maximize},
            .infer = InferAdagrad,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(3),
            .family = "optim",
            .doc = "A step of torch.optim.Adagrad without decay of the learning rate, over lists "
                   "of tensors of equal shapes place by place. "
                   "g = grad / grad_scale + weight_decay p; v = v + g g; p = p - lr g / (sqrt(v) + "
                   "eps). The 0-d operands, types and math are adamw's."}),
      Make({.name = "lamb",
            .signature = "params...: F, grads...: F, exp_avgs...: G, exp_avg_sqs...: G, lr: f32, "
                         "step: i64, grad_scale?: f32, skip?: bool "
                         "-> params...: F, exp_avgs...: G, exp_avg_sqs...: G, coefficients: W",
            .attrs = {Optional("beta1", 0.9,
                               "What the mean of gradients keeps of itself in a step."),
                      Optional("beta2", 0.999, "The same for the mean of their squares."),
                      Optional("eps", 1e-8, "Added to the denominator."),
                      Optional("weight_decay", 0.0, "Times the parameter, added to the update."),
                      Optional("min_coefficient", 0.01, "The least factor of an update."),
                      Optional("max_coefficient", 10.0, "The largest."),
                      Optional("bias_correction", true, "Means are divided by 1 - beta^step."),
                      maximize},
            .infer = InferLamb,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(8),
            .family = "optim",
            .doc =
                "A step of LAMB for lists of tensors, and the coefficient of each tensor, [n]. "
                "Tensors at the same place of the lists have equal shapes. g, m and v are adamw's. "
                "u = m / (1 - beta1^step) / (sqrt(v) / sqrt(1 - beta2^step) + eps) + weight_decay "
                "p. c = l2_norm(p) / l2_norm(u) of the tensor, between min_coefficient and "
                "max_coefficient, or 1 if a norm is 0. p = p - lr c u. If skip is true, all "
                "tensors are returned unchanged, and the coefficients are 1. The 0-d operands, "
                "types and math are adamw's. Squares are summed in the type of the math."}),
      Make({.name = "l2_norm",
            .signature = "xs...: F -> norm: W, norms: W",
            .infer = InferL2Norm,
            .cost = PerOperands(2),
            .family = "optim",
            .doc = "sqrt(sum(x x)): norm over all elements of all tensors, 0-d, and norms of each "
                   "tensor, [n]. In f32, for f64 in f64. Squares are summed in the results' "
                   "type, so f32 overflows if an element is beyond 1.8e19."}),
      Make({.name = "scale",
            .signature = "xs...: F, factor: f32 -> ys...: F, overflow: bool",
            .infer = InferScale,
            .aliasing = Aliasing::kElementwise,
            .cost = PerOperands(1),
            .family = "optim",
            .doc = "Each tensor times the 0-d factor, and whether any element of what came out is "
                   "infinite or NaN, 0-d."}),
  };
}

}  // namespace opwire::definitions

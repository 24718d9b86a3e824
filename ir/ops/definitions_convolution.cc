// Convolution and its gradients.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

constexpr int64_t kMostStep =
    INT32_MAX;  // of strides, paddings and dilations, so that positions are no wider than extents

// Of the attributes, which are in this order in both rows.
enum Attr { kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

// Attribute `attr` along each of `axes` axes: each at least `least`.
StatusOr<Ints> Along(InferContext& c, Attr attr, std::string_view name, int axes, int64_t least) {
  Ints list = c.Attr<Ints>(attr);
  if (list.size() > 1 && list.size() != static_cast<size_t>(axes)) {
    return c.Error(fmt::format("{}: expected none, 1 or {} numbers, got {} for {}", name, axes,
                               list.size(), c.OperandShapes()));
  }
  for (const int64_t v : list) {
    if (v < least || v > kMostStep)
      return c.Error(fmt::format("{}: expected {} to {}, got {}", name, least, kMostStep, v));
  }
  list.resize(static_cast<size_t>(axes), list.empty() ? least : list[0]);
  return list;
}

// An extent that must be 1 or more, where it is known by now.
Status RequireSome(InferContext& c, Dim d, std::string_view what) {
  DimTable& dims = c.dims();
  if (dims.IsConstant(d) && dims.ConstantValue(d) < 1)
    return c.Error(fmt::format("{}: expected 1 or more, got {} in {}", what, dims.ConstantValue(d),
                               c.OperandShapes()));
  return dims.IsConstant(d) ? absl::OkStatus() : c.RequireAtMost(dims.Constant(1), d, what);
}

// What convolving operand `input` by operand `weight` gives.
StatusOr<std::vector<Dim>> Convolved(InferContext& c, int input_at, int weight_at) {
  DimTable& dims = c.dims();
  const TensorType &input = c.In(input_at), &weight = c.In(weight_at);
  const int axes = input.rank() - 2;
  if (axes < 1 || axes > 3)
    return c.Error(fmt::format("operand input: expected rank 3, 4 or 5, got {}", c.Print(input)));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(weight_at, input.rank()));
  OPWIRE_ASSIGN_OR_RETURN(const Ints stride, Along(c, kStride, "stride", axes, 1));
  OPWIRE_ASSIGN_OR_RETURN(const Ints padding, Along(c, kPadding, "padding", axes, 0));
  OPWIRE_ASSIGN_OR_RETURN(const Ints dilation, Along(c, kDilation, "dilation", axes, 1));
  OPWIRE_ASSIGN_OR_RETURN(const Ints output_padding,
                          Along(c, kOutputPadding, "output_padding", axes, 0));
  const bool transposed = c.Attr<bool>(kTransposed);
  const int64_t groups = c.Attr<int64_t>(kGroups);
  if (groups < 1 || groups > kMaxExtent)
    return c.Error(fmt::format("groups: expected 1 to {}, got {}", kMaxExtent, groups));
  const Dim first = weight.shape[0], by_groups = dims.Mul(dims.Constant(groups), weight.shape[1]);
  if (!dims.IsConstant(first)) {
    OPWIRE_RETURN_IF_ERROR(c.RequireEqual(dims.Mod(first, dims.Constant(groups)), dims.Constant(0),
                                          "remainder of weight's first extent by groups and 0"));
  } else if (dims.ConstantValue(first) % groups != 0) {
    return c.Error(fmt::format("groups: expected a divisor of weight's first extent {}, got {}",
                               dims.ToString(first), groups));
  }
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(
      input.shape[1], transposed ? first : by_groups,
      transposed ? "channels of input and weight" : "channels of input and groups of weight's"));
  std::vector<Dim> out = {input.shape[0], transposed ? by_groups : first};
  for (int a = 0; a < axes; ++a) {
    const auto at = static_cast<size_t>(a);
    const Dim extent = input.shape[at + 2], kernel = weight.shape[at + 2];
    OPWIRE_RETURN_IF_ERROR(RequireSome(c, kernel, "extents of a kernel"));
    // From the first element that a kernel meets to the last.
    const Dim reach = dims.Mul(dims.Constant(dilation[at]), dims.Add(kernel, dims.Constant(-1)));
    if (transposed) {
      if (output_padding[at] >= std::max(stride[at], dilation[at])) {
        return c.Error(
            fmt::format("output_padding: expected less than stride or dilation, {}, got {}",
                        std::max(stride[at], dilation[at]), output_padding[at]));
      }
      const Dim steps = dims.Mul(dims.Constant(stride[at]), dims.Add(extent, dims.Constant(-1)));
      out.push_back(dims.Add(dims.Add(steps, reach),
                             dims.Constant(1 + output_padding[at] - 2 * padding[at])));
      OPWIRE_RETURN_IF_ERROR(RequireSome(c, out.back(), "extents of the result"));
    } else {
      if (output_padding[at] != 0)
        return c.Error(fmt::format("output_padding: expected 0 where transposed is false, got {}",
                                   output_padding[at]));
      const Dim padded = dims.Add(extent, dims.Constant(2 * padding[at]));
      OPWIRE_RETURN_IF_ERROR(c.RequireAtMost(dims.Add(reach, dims.Constant(1)), padded,
                                             "what a dilated kernel covers of the padded input"));
      const Dim steps = dims.Add(padded, dims.Mul(dims.Constant(-1), reach));
      out.push_back(
          dims.Add(dims.FloorDiv(dims.Add(steps, dims.Constant(-1)), dims.Constant(stride[at])),
                   dims.Constant(1)));
    }
  }
  return out;
}

Status InferConvolution(InferContext& c) {
  OPWIRE_ASSIGN_OR_RETURN(c.Result(0).shape, Convolved(c, 0, 1));
  if (c.Operand(2) == nullptr) return absl::OkStatus();
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(2, 1));
  return c.RequireEqual(c.In(2).shape[0], c.Result(0).shape[1],
                        "extents of bias and the result's channels");
}

Status InferConvolutionBackward(InferContext& c) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Dim> output, Convolved(c, 1, 2));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, output, "grad and what convolution gives"));
  for (int r = 0; r < 2; ++r) c.Result(r).shape = c.In(r + 1).shape;
  return absl::OkStatus();
}

// Each element of the side whose channels are weight's first extent meets all of a weight's row.
// That is `output`, or `input` where transposed; where both have as many channels, the one with
// fewer positions.
double Products(std::span<const int64_t> input, std::span<const int64_t> weight,
                std::span<const int64_t> output) {
  if (input.size() < 2 || output.size() < 2 || weight.empty() || weight[0] == 0) return 0;
  const bool by_input =
      input[1] == weight[0] && (output[1] != weight[0] || Elements(input) < Elements(output));
  return Elements(by_input ? input : output) * Elements(weight) / static_cast<double>(weight[0]);
}

}  // namespace

std::vector<OpDef> ConvolutionOps() {
  const std::vector<AttrSpec> attrs = {
      Optional("stride", Ints{},
               "Steps of the kernel along each spatial axis; one number is for all, none is 1."),
      Optional("padding", Ints{},
               "Zeros before and after each spatial axis; one number is for all, none is 0."),
      Optional("dilation", Ints{},
               "Steps between elements that a kernel meets; one number is for all, none is 1."),
      Optional("transposed", false,
               "Computes the gradient of a convolution by its input, as ConvTranspose does."),
      Optional("output_padding", Ints{},
               "Where transposed, added to the result's extents: less than stride or dilation; one "
               "number is for all, none is 0."),
      Optional("groups", Int(1), "The number of groups of channels, each convolved on its own.")};
  return {
      Make({.name = "convolution",
            .signature = "input: F, weight: F, bias?: F -> y: F",
            .attrs = attrs,
            .infer = InferConvolution,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{2 * Products(a.operands[0], a.operands[1], a.results[0]),
                                TrafficBytes(a)};
                },
            .family = "convolution",
            .doc =
                "input [N, C, I...] of 1 to 3 spatial axes, weight [Cout, C / groups, K...], bias "
                "[Cout]. y[n, c, o] = bias[c] + sum over j and k of input[n, j, o * stride - "
                "padding + k * dilation] * weight[c, j, k]. j are the channels of c's group, and "
                "input is 0 outside. y is [N, Cout, O...] with O = (I + 2 padding - dilation (K - "
                "1) - 1) / stride + 1, rounded down. If transposed, weight is [C, Cout / groups, "
                "K...], and each input[n, j, i] * weight[j, c, k] is added to y[n, c, i * stride - "
                "padding + k * dilation]. Then O = (I - 1) stride - 2 padding + dilation (K - 1) + "
                "output_padding + 1. Weights that are multiplied by zeros outside must be finite. "
                "f16 and bf16 accumulate in f32. Sums of parts of the terms, and the sum before "
                "bias is added, may be rounded to the type. PyTorch's aten::convolution."}),
      Make({.name = "convolution_backward",
            .signature = "grad: F, input: F, weight: F -> grad_input: F, grad_weight: F",
            .attrs = attrs,
            .infer = InferConvolutionBackward,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{4 * Products(a.operands[1], a.operands[2], a.operands[0]),
                                TrafficBytes(a)};
                },
            .family = "convolution",
            .doc = "The gradients of convolution with respect to its input and weight; grad is "
                   "that of its y. The attributes are those of convolution. Each of its products, "
                   "y[n, c, o] += input[n, j, i] * weight[., ., k], gives grad_input[n, j, i] += "
                   "grad[n, c, o] * weight[., ., k] and grad_weight[., ., k] += grad[n, c, o] * "
                   "input[n, j, i]. Input and grad must be finite under a kernel that is partly "
                   "outside. f16 and bf16 accumulate in f32, and sums of parts may be rounded. The "
                   "gradient with respect to bias is grad's sum over all axes except channels."}),
  };
}

}  // namespace opwire::definitions

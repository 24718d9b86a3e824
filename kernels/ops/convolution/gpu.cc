// Convolution and its gradients by kernels of our own on GPUs.
#include "kernels/ops/convolution/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/convolution/gpu_params.h"
#include "kernels/ops/convolution/shapes.h"
#include "kernels/ops/gpu/families.h"

namespace opwire::gpu {
namespace {

using ops::ConvolutionShapes;

constexpr int64_t kConvolutionTile = 64, kMostConvolutionBlocks = 65535;

// Terms or columns: `outer` of batch or channels by `extents`, in the tensors `direct` and `gathered`, whose strides along the first are given;
// steps are of positions along gathered's axes.
opw::Axes<5, 4> PlacesOf(int64_t outer, const int64_t* extents, int64_t direct_outer, const int64_t* direct_axes, int64_t gathered_outer, const int64_t* steps, int64_t sign) {
  std::vector<int64_t> all = {std::max<int64_t>(1, outer)};
  std::vector<std::vector<int64_t>> strides = {{direct_outer}, {gathered_outer}, {0}, {0}, {0}};
  for (int a = 0; a < ConvolutionShapes::kAxes; ++a) {
    all.push_back(std::max<int64_t>(1, extents[a]));
    strides[0].push_back(direct_axes[a]);
    strides[1].push_back(0);
    for (int b = 0; b < ConvolutionShapes::kAxes; ++b) strides[static_cast<size_t>(b) + 2].push_back(a == b ? sign * steps[a] : 0);
  }
  return AxesOf<5, 4>(Merge(std::move(all), std::move(strides)));
}

// Makes what `s` says. Sources: of x, w and y, and of a bias.
Status PlanProducts(const Call& call, const ConvolutionShapes& s, const Source (&sources)[3], const opw_tensor& bias, const Source& bias_source, Plan& plan) {
  static constexpr std::string_view kNames[] = {"kX", "kW", "kY"};
  static constexpr int64_t kOnes[] = {1, 1, 1};
  const ConvolutionShapes::Place &x = s.places[ConvolutionShapes::kX], &w = s.places[ConvolutionShapes::kW], &y = s.places[ConvolutionShapes::kY];
  opw::convolution::Params p{};
  p.groups = s.groups;
  // x is gathered, y where x is made.
  const bool makes_x = s.made == ConvolutionShapes::kX, makes_w = s.made == ConvolutionShapes::kW;
  const ConvolutionShapes::Place& gathered = makes_x ? y : x;
  const ConvolutionShapes::Tensor gathered_is = makes_x ? ConvolutionShapes::kY : ConvolutionShapes::kX, direct_is = makes_w ? ConvolutionShapes::kY : ConvolutionShapes::kW;
  p.gathered_group = (makes_x ? s.y_channels : s.x_channels) * gathered.channel;
  for (int a = 0; a < ConvolutionShapes::kAxes; ++a) {
    p.start[a] = makes_x ? s.padding[a] : -s.padding[a];
    p.step[a] = makes_x ? s.stride[a] : 1;
    p.extents[a] = makes_x ? s.y_extents[a] : s.x_extents[a];
    p.strides[a] = gathered.axes[a];
  }
  if (makes_w) {
    p.rows = s.y_channels, p.columns = s.x_channels * s.KernelPositions(), p.depth = s.batch * s.YPositions();
    p.direct_row = y.channel, p.direct_group = s.y_channels * y.channel;
    p.z_row = w.outer, p.z_group = s.y_channels * w.outer;
    p.of_terms = PlacesOf(s.batch, s.y_extents, y.outer, y.axes, x.outer, s.stride, 1);
    p.of_columns = PlacesOf(s.x_channels, s.kernel, w.channel, w.axes, x.channel, s.dilation, 1);
  } else if (makes_x) {
    p.rows = s.x_channels, p.columns = s.batch * s.XPositions(), p.depth = s.y_channels * s.KernelPositions();
    p.direct_row = w.channel, p.direct_group = s.y_channels * w.outer;
    p.z_row = x.channel, p.z_group = s.x_channels * x.channel;
    p.of_terms = PlacesOf(s.y_channels, s.kernel, w.outer, w.axes, y.channel, s.dilation, -1);
    p.of_columns = PlacesOf(s.batch, s.x_extents, x.outer, x.axes, y.outer, kOnes, 1);
  } else {
    p.rows = s.y_channels, p.columns = s.batch * s.YPositions(), p.depth = s.x_channels * s.KernelPositions();
    p.direct_row = w.outer, p.direct_group = s.y_channels * w.outer;
    p.z_row = y.channel, p.z_group = s.y_channels * y.channel;
    p.of_terms = PlacesOf(s.x_channels, s.kernel, w.channel, w.axes, x.channel, s.dilation, 1);
    p.of_columns = PlacesOf(s.batch, s.y_extents, y.outer, y.axes, x.outer, s.stride, 1);
  }
  if (p.groups * p.rows * p.columns == 0) return absl::OkStatus();
  if (!ops::Absent(bias)) p.bias_row = bias.shape[0] == 1 ? 0 : bias.strides[0];
  OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({"kernels/ops/convolution/gpu.cuh",
                                                           fmt::format("convolution::Products<{}, convolution::{}>", CodeName(ops::TypeOf(*x.tensor)), kNames[s.made]),
                                                           "convolution::Params", 256}));
  const Grid grid{.blocks = BlocksFor(p.columns, kConvolutionTile), .threads = 256, .blocks_y = std::min(BlocksFor(p.rows, kConvolutionTile), kMostConvolutionBlocks),
                  .blocks_z = std::min<int64_t>(p.groups, kMostConvolutionBlocks)};
  plan.Launch(f, grid, p, {{&p.direct, sources[direct_is]}, {&p.gathered, sources[gathered_is]}, {&p.z, sources[s.made]}, {&p.bias, bias_source}});
  return absl::OkStatus();
}

Status PlanForward(const Call& call, const opw_tensor& bias, Plan& plan) {
  const ConvolutionShapes s = ConvolutionShapes::Forward(call.c);
  const uint32_t* const at = call.c->starts;
  const Source input = Operand(at[0]), weight = Operand(at[1]), bias_source = ops::Absent(bias) ? Fixed(nullptr) : Operand(at[2]);
  if (s.made == ConvolutionShapes::kY) return PlanProducts(call, s, {input, weight, Result(0)}, bias, bias_source, plan);
  return PlanProducts(call, s, {Result(0), weight, input}, bias, bias_source, plan);
}

}  // namespace

Status PlanConvolution(const Call& call, Plan& plan) { return PlanForward(call, call.operand(2), plan); }
Status PlanWithoutBias(const Call& call, Plan& plan) { return PlanForward(call, {}, plan); }

Status PlanGradInput(const Call& call, Plan& plan) {
  const ConvolutionShapes s = ConvolutionShapes::GradInput(call.c);
  const Source grad = Operand(call.c->starts[0]), weight = Operand(call.c->starts[2]);
  if (s.made == ConvolutionShapes::kX) return PlanProducts(call, s, {Result(0), weight, grad}, {}, Fixed(nullptr), plan);
  return PlanProducts(call, s, {grad, weight, Result(0)}, {}, Fixed(nullptr), plan);
}

Status PlanGradWeight(const Call& call, Plan& plan) {
  const Source grad = Operand(call.c->starts[0]), input = Operand(call.c->starts[1]);
  const bool transposed = ConvolutionShapes::IsTransposed(call.c);
  return PlanProducts(call, ConvolutionShapes::GradWeight(call.c), {transposed ? grad : input, Result(1), transposed ? input : grad}, {}, Fixed(nullptr), plan);
}

Status PlanConvolutionBackward(const Call& call, Plan& plan) {
  OPWIRE_RETURN_IF_ERROR(PlanGradInput(call, plan));
  return PlanGradWeight(call, plan);
}

void AddConvolutionGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "convolution", {.name = "portable", .tier = Tier::kReference, .plan = PlanConvolution});
  AddGpu(table, code, "convolution_backward", {.name = "portable", .tier = Tier::kReference, .plan = PlanConvolutionBackward});
  if (code->device().driver().vendor() == Vendor::kCuda) AddConvolutionCudnn(table, code);
}

}  // namespace opwire::gpu

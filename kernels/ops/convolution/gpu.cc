// Convolution and its gradients by our own kernels on GPUs.
#include "kernels/ops/convolution/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/convolution/gpu_params.h"
#include "kernels/ops/convolution/shapes.h"
#include "kernels/ops/gpu/families.h"

namespace opwire::gpu::convolution {
namespace {

using ops::convolution::ConvolutionShapes;

constexpr int64_t kLeastChunk = 128;  // terms
constexpr int64_t kConvolutionTile = 64, kMostConvolutionBlocks = 65535;

// Terms or columns: `outer` of batch or channels by `extents`, in the tensors `direct` and
// `gathered`, whose strides along the first are given; steps are of positions along gathered's
// axes.
opw::Axes<5, 4> PlacesOf(int64_t outer, const int64_t* extents, int64_t direct_outer,
                         const int64_t* direct_axes, int64_t gathered_outer, const int64_t* steps,
                         int64_t sign) {
  std::vector<int64_t> all = {std::max<int64_t>(1, outer)};
  std::vector<std::vector<int64_t>> strides = {{direct_outer}, {gathered_outer}, {0}, {0}, {0}};
  for (int a = 0; a < ConvolutionShapes::kAxes; ++a) {
    all.push_back(std::max<int64_t>(1, extents[a]));
    strides[0].push_back(direct_axes[a]);
    strides[1].push_back(0);
    for (int b = 0; b < ConvolutionShapes::kAxes; ++b)
      strides[static_cast<size_t>(b) + 2].push_back(a == b ? sign * steps[a] : 0);
  }
  return AxesOf<5, 4>(Merge(std::move(all), std::move(strides)));
}

// Plans `s`. Sources: of x, w and y, and of a bias. kSplit: few tiles of many terms may be computed
// in chunks, in the workspace.
template <bool kSplit>
Status PlanProducts(const Call& call, const ConvolutionShapes& s, const Source (&sources)[3],
                    const opw_tensor& bias, const Source& bias_source, Plan& plan) {
  static constexpr std::string_view kNames[] = {"kX", "kW", "kY"};
  static constexpr int64_t kOnes[] = {1, 1, 1};
  const ConvolutionShapes::Place &x = s.places[ConvolutionShapes::kX],
                                 &w = s.places[ConvolutionShapes::kW],
                                 &y = s.places[ConvolutionShapes::kY];
  const DType type = ops::TypeOf(*x.tensor);
  opw::convolution::Params p{};
  p.groups = s.groups;
  // x is gathered, y where x is made.
  const bool makes_x = s.made == ConvolutionShapes::kX, makes_w = s.made == ConvolutionShapes::kW;
  const ConvolutionShapes::Place& gathered = makes_x ? y : x;
  const ConvolutionShapes::Tensor gathered_is =
                                      makes_x ? ConvolutionShapes::kY : ConvolutionShapes::kX,
                                  direct_is =
                                      makes_w ? ConvolutionShapes::kY : ConvolutionShapes::kW;
  p.gathered_group = (makes_x ? s.y_channels : s.x_channels) * gathered.channel;
  for (int a = 0; a < ConvolutionShapes::kAxes; ++a) {
    p.start[a] = makes_x ? s.padding[a] : -s.padding[a];
    p.step[a] = makes_x ? s.stride[a] : 1;
    p.extents[a] = makes_x ? s.y_extents[a] : s.x_extents[a];
    p.strides[a] = gathered.axes[a];
  }
  if (makes_w) {
    p.rows = s.y_channels, p.columns = s.x_channels * s.KernelPositions(),
    p.depth = s.batch * s.YPositions();
    p.direct_row = y.channel, p.direct_group = s.y_channels * y.channel;
    p.z_row = w.outer, p.z_group = s.y_channels * w.outer;
    p.of_terms = PlacesOf(s.batch, s.y_extents, y.outer, y.axes, x.outer, s.stride, 1);
    p.of_columns = PlacesOf(s.x_channels, s.kernel, w.channel, w.axes, x.channel, s.dilation, 1);
  } else if (makes_x) {
    p.rows = s.x_channels, p.columns = s.batch * s.XPositions(),
    p.depth = s.y_channels * s.KernelPositions();
    p.direct_row = w.channel, p.direct_group = s.y_channels * w.outer;
    p.z_row = x.channel, p.z_group = s.x_channels * x.channel;
    p.of_terms = PlacesOf(s.y_channels, s.kernel, w.outer, w.axes, y.channel, s.dilation, -1);
    p.of_columns = PlacesOf(s.batch, s.x_extents, x.outer, x.axes, y.outer, kOnes, 1);
  } else {
    p.rows = s.y_channels, p.columns = s.batch * s.YPositions(),
    p.depth = s.x_channels * s.KernelPositions();
    p.direct_row = w.outer, p.direct_group = s.y_channels * w.outer;
    p.z_row = y.channel, p.z_group = s.y_channels * y.channel;
    p.of_terms = PlacesOf(s.x_channels, s.kernel, w.channel, w.axes, x.channel, s.dilation, 1);
    p.of_columns = PlacesOf(s.batch, s.y_extents, y.outer, y.axes, x.outer, s.stride, 1);
  }
  if (p.groups * p.rows * p.columns == 0) return absl::OkStatus();
  if (!ops::Absent(bias)) p.bias_row = bias.shape[0] == 1 ? 0 : bias.strides[0];
  Kernel* const f = call.code.Get(
      {"kernels/ops/convolution/gpu.cuh",
       fmt::format("convolution::Products<{}, convolution::{}>", CodeName(type), kNames[s.made]),
       "convolution::Params", 256});
  const int64_t row_tiles = BlocksFor(p.rows, kConvolutionTile),
                column_tiles = BlocksFor(p.columns, kConvolutionTile);
  p.chunks = 1, p.chunk = std::max<int64_t>(1, p.depth);
  if (const int64_t wanted = 2 * call.multiprocessors() / (row_tiles * column_tiles * p.groups);
      kSplit && wanted > 1 && p.depth >= 2 * kLeastChunk) {
    p.chunk = BlocksFor(p.depth, std::min<int64_t>(wanted, p.depth / kLeastChunk));
    p.chunks = BlocksFor(p.depth, p.chunk);
  }
  const Source parts = p.chunks == 1
                           ? Fixed(nullptr)
                           : Workspace(plan.TakeWorkspace(p.chunks * p.groups * p.rows * p.columns *
                                                          (type == DType::kF64 ? 8 : 4)));
  const Grid grid{.blocks = column_tiles,
                  .threads = 256,
                  .blocks_y = std::min(row_tiles, kMostConvolutionBlocks),
                  .blocks_z = std::min<int64_t>(p.groups * p.chunks, kMostConvolutionBlocks)};
  plan.Launch(f, grid, p,
              {{&p.direct, sources[direct_is]},
               {&p.gathered, sources[gathered_is]},
               {&p.z, sources[s.made]},
               {&p.bias, bias_source},
               {&p.parts, parts}});
  if (p.chunks == 1) return absl::OkStatus();
  Kernel* const add = call.code.Get({"kernels/ops/convolution/gpu.cuh",
                                     fmt::format("convolution::AddParts<{}>", CodeName(type)),
                                     "convolution::Params", 256});
  const Grid adds{.blocks = BlocksFor(p.columns, 256),
                  .threads = 256,
                  .blocks_y = std::min<int64_t>(p.groups * p.rows, kMostConvolutionBlocks)};
  plan.Launch(add, adds, p, {{&p.z, sources[s.made]}, {&p.bias, bias_source}, {&p.parts, parts}});
  return absl::OkStatus();
}

template <bool kSplit>
Status PlanForward(const Call& call, const opw_tensor& bias, Plan& plan) {
  const ConvolutionShapes s = ConvolutionShapes::Forward(call.c);
  const uint32_t* const at = call.c->starts;
  const Source input = Operand(at[0]), weight = Operand(at[1]),
               bias_source = ops::Absent(bias) ? Fixed(nullptr) : Operand(at[2]);
  if (s.made == ConvolutionShapes::kY)
    return PlanProducts<kSplit>(call, s, {input, weight, Result(0)}, bias, bias_source, plan);
  return PlanProducts<kSplit>(call, s, {Result(0), weight, input}, bias, bias_source, plan);
}

}  // namespace

Status PlanConvolution(const Call& call, Plan& plan) {
  return PlanForward<true>(call, call.operand(2), plan);
}
template <bool kSplit>
Status PlanWithoutBias(const Call& call, Plan& plan) {
  return PlanForward<kSplit>(call, {}, plan);
}

template <bool kSplit>
Status PlanGradInput(const Call& call, Plan& plan) {
  const ConvolutionShapes s = ConvolutionShapes::GradInput(call.c);
  const Source grad = Operand(call.c->starts[0]), weight = Operand(call.c->starts[2]);
  if (s.made == ConvolutionShapes::kX)
    return PlanProducts<kSplit>(call, s, {Result(0), weight, grad}, {}, Fixed(nullptr), plan);
  return PlanProducts<kSplit>(call, s, {grad, weight, Result(0)}, {}, Fixed(nullptr), plan);
}

template <bool kSplit>
Status PlanGradWeight(const Call& call, Plan& plan) {
  const Source grad = Operand(call.c->starts[0]), input = Operand(call.c->starts[1]);
  const bool transposed = ConvolutionShapes::IsTransposed(call.c);
  return PlanProducts<kSplit>(call, ConvolutionShapes::GradWeight(call.c),
                              {transposed ? grad : input, Result(1), transposed ? input : grad}, {},
                              Fixed(nullptr), plan);
}

template Status PlanWithoutBias<true>(const Call&, Plan&);
template Status PlanWithoutBias<false>(const Call&, Plan&);
template Status PlanGradInput<true>(const Call&, Plan&);
template Status PlanGradInput<false>(const Call&, Plan&);
template Status PlanGradWeight<true>(const Call&, Plan&);
template Status PlanGradWeight<false>(const Call&, Plan&);

Status PlanConvolutionBackward(const Call& call, Plan& plan) {
  OPWIRE_RETURN_IF_ERROR(PlanGradInput<true>(call, plan));
  return PlanGradWeight<true>(call, plan);
}

void AddConvolutionGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "convolution",
         {.name = "portable", .tier = Tier::kReference, .plan = PlanConvolution});
  AddGpu(table, code, "convolution_backward",
         {.name = "portable", .tier = Tier::kReference, .plan = PlanConvolutionBackward});
  if (code->device().driver().vendor() == Vendor::kCuda) AddConvolutionCudnn(table, code);
}

}  // namespace opwire::gpu::convolution

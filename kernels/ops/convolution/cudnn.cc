// Convolution, its transpose and its gradients by cuDNN, with tensors in the layout of programs.
#include <optional>

#include "kernels/ops/convolution/gpu.h"
#include "kernels/ops/convolution/shapes.h"
#include "kernels/ops/gpu/cudnn_plan.h"
#include "kernels/ops/gpu/fused.h"

namespace opwire::gpu::convolution {
namespace {

using ops::convolution::ConvolutionShapes;

// The convolution as cuDNN takes it: one spatial axis becomes two, the first with one element.
CudnnConvolution ConvolutionOf(const ConvolutionShapes& s, DType type, bool deterministic) {
  constexpr int kAxes = ConvolutionShapes::kAxes;
  const int axes = std::max(2, s.places[ConvolutionShapes::kX].tensor->rank - 2),
            skip = kAxes - axes;
  const auto dense = [&](int64_t outer, int64_t channels, const int64_t* extents) {
    CudnnTensor t{.extents = {outer, channels}, .rank = axes + 2};
    std::copy(extents + skip, extents + kAxes, t.extents + 2);
    int64_t stride = 1;
    for (int a = t.rank - 1; a >= 0; --a) {
      t.strides[a] = stride;
      stride *= t.extents[a];
    }
    return t;
  };
  CudnnConvolution call{.type = type,
                        .x = dense(s.batch, s.groups * s.x_channels, s.x_extents),
                        .w = dense(s.groups * s.y_channels, s.x_channels, s.kernel),
                        .y = dense(s.batch, s.groups * s.y_channels, s.y_extents),
                        .deterministic = deterministic};
  call.made = s.made == ConvolutionShapes::kX   ? CudnnConvolution::kX
              : s.made == ConvolutionShapes::kW ? CudnnConvolution::kW
                                                : CudnnConvolution::kY;
  for (int a = 0; a < axes; ++a)
    call.stride[a] = s.stride[a + skip], call.padding[a] = s.padding[a + skip],
    call.dilation[a] = s.dilation[a + skip];
  return call;
}

const char* Supports(const ConvolutionShapes& s) {
  constexpr int64_t kMost =
      INT32_MAX;  // elements: the library's kernels compute offsets in 32 bits
  if (s.Nothing()) return "nothing to sum";
  if (!s.IsWhole()) return "output_padding of a stride or more";
  for (const ConvolutionShapes::Place& p : s.places) {
    if (p.tensor->elements > kMost) return "a tensor of 2^31 elements or more";
  }
  return WithoutCudnn();
}
const char* SupportsConvolution(const opw_call* c) {
  return Supports(ConvolutionShapes::Forward(c));
}
const char* SupportsGradients(const opw_call* c) {
  return Supports(ConvolutionShapes::GradInput(c));
}

// The same by our own kernels. `plan` is used if the library has no kernel. `unaligned`, without
// workspace, is used if addresses are not aligned for the library.
struct Portable {
  Status (*plan)(const Call&, Plan&);
  Status (*unaligned)(const Call&, Plan&);
};

// Plans `s` as a graph. Arguments: those of x, w and y.
Status PlanGraph(const Call& call, const ConvolutionShapes& s, bool deterministic,
                 const CudnnArgument (&arguments)[3], const Portable& portable, Plan& plan) {
  auto graph =
      CudnnConvolutionOf(call.code, ConvolutionOf(s, ops::TypeOf(call.result()), deterministic));
  if (absl::IsUnimplemented(graph.status())) return portable.plan(call, plan);
  OPWIRE_RETURN_IF_ERROR(graph.status());
  std::vector<CudnnArgument> in_order;
  for (int t = 0; t < 3; ++t) {
    if (t != s.made) in_order.push_back(arguments[t]);
  }
  in_order.push_back(arguments[s.made]);
  RunCudnn(*std::move(graph), std::move(in_order), call, portable.unaligned, plan);
  return absl::OkStatus();
}

// Adds each channel's bias to the result.
Status PlanBias(const Call& call, Plan& plan) {
  const opw_tensor &y = call.result(), &given = call.operand(2);
  int64_t shape[OPW_MAX_RANK], strides[OPW_MAX_RANK] = {};
  std::fill_n(shape, y.rank, 1);
  shape[1] = given.shape[0];
  strides[1] = given.strides[0];
  opw_tensor bias = given;
  bias.shape = shape, bias.strides = strides, bias.rank = y.rank, bias.contiguous = 0;
  const opw_tensor* const tensors[] = {&y, &bias, &y};
  const Source sources[] = {Result(0), Operand(call.c->starts[2]), Result(0)};
  return PlanAdd(call.code, tensors, sources, plan);
}

Status PlanByGraph(const Call& call, Plan& plan) {
  const ConvolutionShapes s = ConvolutionShapes::Forward(call.c);
  const CudnnArgument input{false, call.c->starts[0]}, weight{false, call.c->starts[1]}, y{true, 0};
  const bool transposed = s.made == ConvolutionShapes::kX;
  OPWIRE_RETURN_IF_ERROR(PlanGraph(call, s, true,
                                   {transposed ? y : input, weight, transposed ? input : y},
                                   {PlanWithoutBias<true>, PlanWithoutBias<false>}, plan));
  return ops::Absent(call.operand(2)) ? absl::OkStatus() : PlanBias(call, plan);
}

template <bool kDeterministic>
Status PlanGradients(const Call& call, Plan& plan) {
  const uint32_t* const at = call.c->starts;
  const CudnnArgument grad{false, at[0]}, input{false, at[1]}, weight{false, at[2]},
      grad_input{true, 0}, grad_weight{true, 1};
  const bool transposed = ConvolutionShapes::IsTransposed(call.c);
  OPWIRE_RETURN_IF_ERROR(
      PlanGraph(call, ConvolutionShapes::GradInput(call.c), kDeterministic,
                {transposed ? grad : grad_input, weight, transposed ? grad_input : grad},
                {PlanGradInput<true>, PlanGradInput<false>}, plan));
  return PlanGraph(call, ConvolutionShapes::GradWeight(call.c), kDeterministic,
                   {transposed ? grad : input, grad_weight, transposed ? input : grad},
                   {PlanGradWeight<true>, PlanGradWeight<false>}, plan);
}

}  // namespace

void AddConvolutionCudnn(VariantTable& table, const std::shared_ptr<Code>& code) {
  constexpr DTypeSet kTypes{DType::kF32, DType::kF16, DType::kBF16};
  constexpr uint32_t kOrdered = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "convolution",
         {.name = "cudnn",
          .dtypes = kTypes,
          .flags = kOrdered,
          .supports = SupportsConvolution,
          .plan = PlanByGraph,
          .without = WithoutCudnn});
  AddGpu(table, code, "convolution_backward",
         {.name = "cudnn",
          .priority = 1,
          .dtypes = kTypes,
          .flags = OPW_CONTIGUOUS,
          .supports = SupportsGradients,
          .plan = PlanGradients<false>,
          .without = WithoutCudnn});
  AddGpu(table, code, "convolution_backward",
         {.name = "cudnn-ordered",
          .dtypes = kTypes,
          .flags = kOrdered,
          .supports = SupportsGradients,
          .plan = PlanGradients<true>,
          .without = WithoutCudnn});
}

}  // namespace opwire::gpu::convolution

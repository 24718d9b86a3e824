// linear_cross_entropy and its gradient on GPUs. A product makes the logits of some rows at a time.
// They are reduced in place, and overwritten by the next.
#include <fmt/format.h>

#include "kernels/ops/gpu/row_launch.h"
#include "kernels/ops/loss/gpu.h"
#include "kernels/ops/matmul/gpu.h"

namespace opwire::gpu::loss {
namespace {

// A call's sizes. Each row of logits begins at a multiple of a vector of any type.
struct Sizes {
  DType type, wide;  // of the tensors, and of logits and sums
  int64_t rows, classes, depth, pitch, chunk;
  Sizes(const opw_call* c, int input) {
    const opw_tensor &x = ops::Operand(c, input), &weight = ops::Operand(c, input + 1);
    type = ops::TypeOf(x);
    wide = type == DType::kF64 ? DType::kF64 : DType::kF32;
    rows = x.shape[0], classes = weight.shape[0], depth = x.shape[1];
    pitch = std::max<int64_t>(8, (classes + 7) / 8 * 8);
    chunk = ops::loss::RowsAtATime(c, rows, pitch * DTypeBytes(wide));
  }
};

// The products of `rows` rows starting with `first`. `at` has the places of logits, d and the sums
// of weight's gradient.
struct Places {
  Source logits, d, sums;
};
matmul::Product LogitsOf(const Call& call, const Sizes& z, int input, int64_t first, int64_t rows,
                         const Places& at) {
  return {.shapes = {rows, z.classes, z.depth, z.depth, 1, 1, z.depth, z.pitch},
          .type = z.type,
          .result = z.wide,
          .x = Operand(call.c->starts[input], first * z.depth * DTypeBytes(z.type)),
          .y = Operand(call.c->starts[input + 1]),
          .z = at.logits};
}
matmul::Product InputGradientOf(const Call& call, const Sizes& z, int64_t first, int64_t rows,
                                const Places& at) {
  return {.shapes = {rows, z.depth, z.classes, z.pitch, 1, z.depth, 1, z.depth},
          .type = z.type,
          .result = z.type,
          .x = at.d,
          .y = Operand(call.c->starts[2]),
          .z = Result(0, first * z.depth * DTypeBytes(z.type))};
}
matmul::Product WeightGradientOf(const Call& call, const Sizes& z, int64_t first, int64_t rows,
                                 const Places& at) {
  return {.shapes = {z.classes, z.depth, rows, 1, z.pitch, z.depth, 1, z.depth},
          .type = z.type,
          .result = z.chunk < z.rows ? z.wide : z.type,
          .x = at.d,
          .y = Operand(call.c->starts[1], first * z.depth * DTypeBytes(z.type)),
          .z = at.sums,
          .adds = first > 0};
}

using Multiply = Status (*)(const Call&, const matmul::Product&, Plan&);

template <Multiply kMultiply>
Status PlanForward(const Call& call, Plan& plan) {
  const Sizes z(call.c, 0);
  const int64_t totals = TakeTotals(z.rows, plan);
  const Places at{.logits = Workspace(plan.TakeWorkspace(z.chunk * z.pitch * DTypeBytes(z.wide)))};
  for (int64_t first = 0; first < z.rows; first += z.chunk) {
    const int64_t rows = std::min(z.chunk, z.rows - first);
    if (z.classes > 0)
      OPWIRE_RETURN_IF_ERROR(kMultiply(call, LogitsOf(call, z, 0, first, rows, at), plan));
    const LogitRows logits{.type = z.wide,
                           .logits = at.logits,
                           .rows = rows,
                           .classes = z.classes,
                           .pitch = z.pitch,
                           .first = first,
                           .target = 2};
    OPWIRE_RETURN_IF_ERROR(
        PlanLosses(call, logits, totals, Result(1, first * DTypeBytes(z.wide)), plan));
  }
  return PlanTotal(call, z.rows, totals, plan);
}

// d of a chunk's logits, the gradients by them.
Status PlanGradients(const Call& call, const Sizes& z, const LogitRows& logits, const Places& at,
                     std::optional<int64_t> count, Plan& plan) {
  opw::loss::RowsParams p = ParamsOf(call, logits);
  p.each_grad = call.operand(0).rank != 0;
  const std::string body = fmt::format("loss::RoundedGradients<{}, {}>", CodeName(z.type),
                                       CodeName(ops::TypeOf(call.operand(3))));
  Kernel* const f = call.code.Get({"kernels/ops/loss/gpu.cuh", body, "loss::RowsParams", 512});
  std::vector<Field> fields = {
      {&p.logits, at.logits},
      {&p.out, at.d},
      {&p.grad,
       Operand(call.c->starts[0], p.each_grad != 0 ? logits.first * DTypeBytes(z.type) : 0)},
      {&p.target, TargetsOf(call, logits)},
      {&p.log_sums, Operand(call.c->starts[4], logits.first * DTypeBytes(z.wide))},
      {&p.reporter, Reports()}};
  if (count) fields.push_back({&p.totals, Workspace(*count)});
  plan.LaunchBytes(f, {.blocks = std::min<int64_t>(p.rows, INT32_MAX), .threads = 512}, &p,
                   sizeof p, fields);
  return absl::OkStatus();
}

template <Multiply kMultiply>
Status PlanBackward(const Call& call, Plan& plan) {
  const Sizes z(call.c, 1);
  const opw_tensor &grad_input = call.result(0), &grad_weight = call.result(1);
  if (z.rows == 0) {
    plan.Zero(Result(1), grad_weight.elements * DTypeBytes(z.type));
    return absl::OkStatus();
  }
  Places at;
  at.logits = at.d = Workspace(plan.TakeWorkspace(z.chunk * z.pitch * DTypeBytes(z.wide)));
  if (z.type != z.wide)
    at.d = Workspace(plan.TakeWorkspace(z.chunk * z.pitch * DTypeBytes(z.type)));
  const bool apart = z.type != z.wide && z.chunk < z.rows;
  at.sums =
      apart ? Workspace(plan.TakeWorkspace(grad_weight.elements * DTypeBytes(z.wide))) : Result(1);
  std::optional<int64_t> count;
  if (ops::loss::ReductionOf(call.c) == ops::loss::Reduction::kMean)
    OPWIRE_RETURN_IF_ERROR(PlanCount(call, plan, z.rows, 3, &count.emplace()));
  for (int64_t first = 0; first < z.rows; first += z.chunk) {
    const int64_t rows = std::min(z.chunk, z.rows - first);
    if (z.classes > 0)
      OPWIRE_RETURN_IF_ERROR(kMultiply(call, LogitsOf(call, z, 1, first, rows, at), plan));
    const LogitRows logits{.type = z.wide,
                           .logits = at.logits,
                           .rows = rows,
                           .classes = z.classes,
                           .pitch = z.pitch,
                           .first = first,
                           .target = 3};
    OPWIRE_RETURN_IF_ERROR(PlanGradients(call, z, logits, at, count, plan));
    if (grad_input.elements > 0)
      OPWIRE_RETURN_IF_ERROR(kMultiply(call, InputGradientOf(call, z, first, rows, at), plan));
    if (grad_weight.elements > 0)
      OPWIRE_RETURN_IF_ERROR(kMultiply(call, WeightGradientOf(call, z, first, rows, at), plan));
  }
  if (!apart || grad_weight.elements == 0) return absl::OkStatus();
  const matmul::Product sums = WeightGradientOf(call, z, 0, z.chunk, at);
  matmul::Product rounded = sums;
  rounded.result = z.type;
  rounded.z = Result(1);
  return matmul::PlanFinish(call, rounded, sums, plan);
}

template <int kInput>
const char* SupportsProducts(const opw_call* c) {
  const Sizes z(c, kInput);
  return z.rows == 0 || z.classes == 0 || z.depth == 0 ? "nothing to multiply"
                                                       : matmul::WithoutCublasLt(/*open=*/true);
}

}  // namespace

void AddLinearLossGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  constexpr std::string_view kForward = "linear_cross_entropy",
                             kBackward = "linear_cross_entropy_backward";
  AddGpu(table, code, kForward,
         {.name = "portable",
          .tier = Tier::kReference,
          .flags = flags,
          .plan = PlanForward<matmul::PlanTiles>});
  AddGpu(table, code, kBackward,
         {.name = "portable",
          .tier = Tier::kReference,
          .flags = flags,
          .plan = PlanBackward<matmul::PlanTiles>});
  if (code->device().driver().vendor() != Vendor::kCuda) return;
  AddGpu(table, code, kForward,
         {.name = "cublaslt",
          .flags = flags,
          .supports = SupportsProducts<0>,
          .plan = PlanForward<matmul::PlanCublasLt>,
          .without = matmul::WithoutCublasLt});
  AddGpu(table, code, kBackward,
         {.name = "cublaslt",
          .flags = flags,
          .supports = SupportsProducts<1>,
          .plan = PlanBackward<matmul::PlanCublasLt>,
          .without = matmul::WithoutCublasLt});
}

}  // namespace opwire::gpu::loss

// The portable kernels of attention and its gradient on GPUs.
#include "kernels/ops/attention/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/attention/gpu_params.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/gpu/families.h"

namespace opwire::gpu::attention {
namespace {

using Shapes = ops::attention::AttentionShapes;

constexpr int64_t kMostBlocks = 65535;

}  // namespace

Status PlanAttention(const Call& call, Plan& plan) {
  const Shapes s(call.c);
  const DType type = ops::TypeOf(call.operand(0));
  const opw_tensor& mask = call.operand(3);
  const std::string_view mask_name =
      ops::Absent(mask) ? "attention::NoMask" : CodeName(ops::TypeOf(mask));
  const int rows = s.queries <= 16 ? 1 : 4;  // of queries per thread
  const int columns = s.value_depth <= 64 || type == DType::kF64 ? 64
                      : s.value_depth <= 128                     ? 128
                                                                 : 256;
  Kernel* const f = call.code.Get(
      {"kernels/ops/attention/gpu.cuh",
       fmt::format("attention::Forward<{}, {}, {}, {}>", CodeName(type), mask_name, rows, columns),
       "attention::Params", 256, type == DType::kF64 || columns * rows > 512 ? 1 : 2});
  opw::attention::Params p{};
  p.heads = s.heads, p.queries = s.queries, p.keys = s.keys, p.depth = s.depth,
  p.value_depth = s.value_depth;
  p.query_row = s.row[Shapes::kQuery], p.query_column = s.column[Shapes::kQuery];
  p.key_row = s.row[Shapes::kKey], p.key_column = s.column[Shapes::kKey];
  p.value_row = s.row[Shapes::kValue], p.value_column = s.column[Shapes::kValue];
  p.mask_row = s.row[Shapes::kMask], p.mask_column = s.column[Shapes::kMask];
  p.output_row = s.row[Shapes::kOutput], p.output_column = s.column[Shapes::kOutput];
  p.log_row = s.row[Shapes::kLogSumExp];
  p.causal = s.causal;
  p.window = s.window;
  p.scale = s.scale;
  std::vector<std::vector<int64_t>> strides;
  for (int t = 0; t < Shapes::kTensors; ++t)
    strides.emplace_back(s.strides[t], s.strides[t] + s.rank);
  p.axes = AxesOf<Shapes::kTensors, 16>(Merge({s.extents, s.extents + s.rank}, std::move(strides)));
  const Grid grid{
      .blocks = BlocksFor(s.queries, 16 * rows),
      .threads = 256,
      .blocks_y = std::clamp<int64_t>(BlocksFor(s.value_depth, columns), 1, kMostBlocks),
      .blocks_z = std::min(s.heads, kMostBlocks)};
  const auto operand = [&](int i) { return Operand(call.c->starts[i]); };
  plan.Launch(f, grid, p,
              {{&p.query, operand(0)},
               {&p.key, operand(1)},
               {&p.value, operand(2)},
               {&p.mask, operand(3)},
               {&p.output, Result(0)},
               {&p.log_sum_exp, Result(1)}});
  return absl::OkStatus();
}

namespace {

// One gradient: of query, key or value, which is the result `which`.
Status PlanGradient(const Call& call, int which, Plan& plan) {
  static constexpr std::string_view kGradients[] = {"attention::kOfQuery", "attention::kOfKey",
                                                    "attention::kOfValue"};
  static constexpr Shapes::Tensor kResults[] = {Shapes::kGradQuery, Shapes::kGradKey,
                                                Shapes::kGradValue};
  const Shapes s = Shapes::OfBackward(call.c);
  const opw_tensor& mask = call.operand(6);
  const std::string_view mask_name =
      ops::Absent(mask) ? "attention::NoMask" : CodeName(ops::TypeOf(mask));
  const bool queries = which == 0;
  const Shapes::Tensor result = kResults[which];
  const int group_axis = s.rank - 1, rank = queries ? s.rank : group_axis;
  const int64_t rows = queries ? s.queries : s.keys, columns = which == 2 ? s.value_depth : s.depth;
  opw::attention::BackwardParams p{};
  p.heads = 1;
  for (int a = 0; a < rank; ++a) p.heads *= s.extents[a];
  p.group = queries ? 1 : s.extents[group_axis];
  if (p.heads * rows * columns == 0) return absl::OkStatus();
  Kernel* const f = call.code.Get(
      {"kernels/ops/attention/gpu_backward.cuh",
       fmt::format("attention::Backward<{}, {}, {}>", CodeName(ops::TypeOf(call.operand(1))),
                   mask_name, kGradients[which]),
       "attention::BackwardParams", 256, 1});
  p.queries = s.queries, p.keys = s.keys, p.depth = s.depth, p.value_depth = s.value_depth;
  p.grad_row = s.row[Shapes::kGrad], p.grad_column = s.column[Shapes::kGrad];
  p.query_row = s.row[Shapes::kQuery], p.query_column = s.column[Shapes::kQuery];
  p.key_row = s.row[Shapes::kKey], p.key_column = s.column[Shapes::kKey];
  p.value_row = s.row[Shapes::kValue], p.value_column = s.column[Shapes::kValue];
  p.output_row = s.row[Shapes::kOutput], p.output_column = s.column[Shapes::kOutput];
  p.log_row = s.row[Shapes::kLogSumExp];
  p.mask_row = s.row[Shapes::kMask], p.mask_column = s.column[Shapes::kMask];
  p.result_row = s.row[result], p.result_column = s.column[result];
  p.group_grad = s.strides[Shapes::kGrad][group_axis],
  p.group_query = s.strides[Shapes::kQuery][group_axis],
  p.group_output = s.strides[Shapes::kOutput][group_axis];
  p.group_log = s.strides[Shapes::kLogSumExp][group_axis],
  p.group_mask = s.strides[Shapes::kMask][group_axis];
  p.causal = s.causal;
  p.window = s.window;
  p.scale = s.scale;
  std::vector<std::vector<int64_t>> strides;
  for (const Shapes::Tensor t : {Shapes::kGrad, Shapes::kQuery, Shapes::kKey, Shapes::kValue,
                                 Shapes::kOutput, Shapes::kLogSumExp, Shapes::kMask, result}) {
    strides.emplace_back(s.strides[t], s.strides[t] + rank);
  }
  p.axes = AxesOf<8, 16>(Merge({s.extents, s.extents + rank}, std::move(strides)));
  const Grid grid{.blocks = BlocksFor(rows, 64),
                  .threads = 256,
                  .blocks_y = std::min(BlocksFor(columns, 64), kMostBlocks),
                  .blocks_z = std::min<int64_t>(p.heads, kMostBlocks)};
  const auto operand = [&](int i) { return Operand(call.c->starts[i]); };
  plan.Launch(f, grid, p,
              {{&p.grad, operand(0)},
               {&p.query, operand(1)},
               {&p.key, operand(2)},
               {&p.value, operand(3)},
               {&p.output, operand(4)},
               {&p.log_sum_exp, operand(5)},
               {&p.mask, operand(6)},
               {&p.result, Result(static_cast<uint32_t>(which))}});
  return absl::OkStatus();
}

}  // namespace

Status PlanAttentionBackward(const Call& call, Plan& plan) {
  for (int which = 0; which < 3; ++which) OPWIRE_RETURN_IF_ERROR(PlanGradient(call, which, plan));
  return absl::OkStatus();
}

void AddAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "scaled_dot_product_attention",
         {.name = "portable",
          .tier = Tier::kReference,
          .flags = OPW_DETERMINISTIC | OPW_STRIDED,
          .plan = PlanAttention});
  AddGpu(table, code, "scaled_dot_product_attention_backward",
         {.name = "portable",
          .tier = Tier::kReference,
          .flags = OPW_DETERMINISTIC | OPW_STRIDED,
          .plan = PlanAttentionBackward});
  if (code->device().driver().vendor() == Vendor::kCuda) AddAttentionCudnn(table, code);
}

}  // namespace opwire::gpu::attention

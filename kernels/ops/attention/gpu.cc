// The portable attention kernel on GPUs.
#include <fmt/format.h>

#include "kernels/ops/attention/gpu_params.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {
namespace {

using Shapes = ops::AttentionShapes;

constexpr int64_t kMostBlocks = 65535;

Status PlanAttention(const Call& call, Plan& plan) {
  const Shapes s(call.c);
  const DType type = ops::TypeOf(call.operand(0));
  const opw_tensor& mask = call.operand(3);
  const std::string_view mask_name = ops::Absent(mask) ? "attention::NoMask" : CodeName(ops::TypeOf(mask));
  const int rows = s.queries <= 16 ? 1 : 4;  // of queries a thread
  const int columns = s.value_depth <= 64 || type == DType::kF64 ? 64 : s.value_depth <= 128 ? 128 : 256;
  OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({"kernels/ops/attention/gpu.cuh",
                                                           fmt::format("attention::Forward<{}, {}, {}, {}>", CodeName(type), mask_name, rows, columns),
                                                           "attention::Params", 256, type == DType::kF64 || columns * rows > 512 ? 1 : 2}));
  opw::attention::Params p{};
  p.heads = s.heads, p.queries = s.queries, p.keys = s.keys, p.depth = s.depth, p.value_depth = s.value_depth;
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
  for (const auto& of_tensor : s.strides) strides.emplace_back(of_tensor, of_tensor + s.rank);
  p.axes = AxesOf<Shapes::kTensors, 16>(Merge({s.extents, s.extents + s.rank}, std::move(strides)));
  const Grid grid{.blocks = BlocksFor(s.queries, 16 * rows), .threads = 256, .blocks_y = std::clamp<int64_t>(BlocksFor(s.value_depth, columns), 1, kMostBlocks),
                  .blocks_z = std::min(s.heads, kMostBlocks)};
  const auto operand = [&](int i) { return Operand(call.c->starts[i]); };
  plan.Launch(f, grid, p, {{&p.query, operand(0)}, {&p.key, operand(1)}, {&p.value, operand(2)}, {&p.mask, operand(3)}, {&p.output, Result(0)}, {&p.log_sum_exp, Result(1)}});
  return absl::OkStatus();
}

}  // namespace

void AddAttentionGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "scaled_dot_product_attention", {.name = "portable", .tier = Tier::kReference, .plan = PlanAttention});
}

}  // namespace opwire::gpu

// The ops on GGUF's blocks on GPUs: one form each, for every device.
#include <fmt/format.h>

#include "kernels/ops/blocks/blocks.h"
#include "kernels/ops/blocks/gpu_params.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::blocks {
namespace {

constexpr std::string_view kFile = "kernels/ops/blocks/gpu.cuh";
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;

Status PlanLinear(const Call& call, Plan& plan) {
  const opw_tensor &x = call.operand(0), &weight = call.operand(1), &bias = call.operand(2),
                   &y = call.result();
  opw::blocks::LinearParams p{};
  p.n = weight.shape[0];
  p.k = weight.shape[1];
  p.m = y.elements / p.n;
  const std::string body =
      fmt::format("blocks::Linear<{}, {}>", CodeName(ops::TypeOf(x)), weight.encoding);
  Kernel* const f = call.code.Get({kFile, body, "blocks::LinearParams", kThreads});
  const Grid grid{.blocks = std::min(BlocksFor(p.n, kThreads / 32), kMostBlocks),
                  .threads = kThreads,
                  .blocks_y = std::min<int64_t>(BlocksFor(p.m, opw::blocks::kRows), 65535)};
  if (ops::Absent(bias))
    plan.Launch(f, grid, p, {{&p.x, Operand(0)}, {&p.weight, Operand(1)}, {&p.y, Result(0)}});
  else
    plan.Launch(
        f, grid, p,
        {{&p.x, Operand(0)}, {&p.weight, Operand(1)}, {&p.bias, Operand(2)}, {&p.y, Result(0)}});
  return absl::OkStatus();
}

// `index`: the operand that names rows, or none.
Status PlanFloats(const Call& call, const opw_tensor* index, Plan& plan) {
  const opw_tensor &x = call.operand(0), &y = call.result();
  opw::blocks::FloatsParams p{};
  p.k = x.shape[x.rank - 1];
  p.count = y.elements / p.k;
  p.extent = x.shape[0];
  const std::string body =
      fmt::format("blocks::Floats<{}, {}, {}>", CodeName(ops::TypeOf(y)), x.encoding,
                  index != nullptr ? CodeName(ops::TypeOf(*index)) : "i64");
  Kernel* const f = call.code.Get({kFile, body, "blocks::FloatsParams", kThreads});
  const Grid grid{.blocks = std::min(BlocksFor(y.elements, kThreads), kMostBlocks),
                  .threads = kThreads};
  if (index == nullptr)
    plan.Launch(f, grid, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  else
    plan.Launch(
        f, grid, p,
        {{&p.x, Operand(0)}, {&p.index, Operand(1)}, {&p.y, Result(0)}, {&p.reporter, Reports()}});
  return absl::OkStatus();
}

}  // namespace

void AddBlocksGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  constexpr uint32_t kFlags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, "quantized_linear", {.flags = kFlags, .plan = PlanLinear});
  AddGpu(table, code, "quantized_embedding",
         {.flags = kFlags, .plan = [](const Call& call, Plan& plan) {
            return PlanFloats(call, &call.operand(1), plan);
          }});
  AddGpu(table, code, "dequantize_blocks",
         {.flags = kFlags,
          .plan = [](const Call& call, Plan& plan) { return PlanFloats(call, nullptr, plan); }});
}

}  // namespace opwire::gpu::blocks

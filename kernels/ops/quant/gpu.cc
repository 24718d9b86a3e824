// quantize and dequantize on GPUs: which form a call takes.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/quant/gpu_params.h"
#include "kernels/ops/quant/quant.h"

namespace opwire::gpu::quant {
namespace {

constexpr std::string_view kFile = "kernels/ops/quant/gpu.cuh", kParams = "quant::QuantParams";
constexpr int kThreads = 256, kItems = 16;  // gpu.cuh's
constexpr int64_t kLeastChunk = 32768;      // elements

// Lanes of a warp for a group; 0: a whole block.
int LanesOf(const ops::quant::Groups& g) {
  return g.size <= 2 * kItems ? 2 : g.size <= 16 * kItems ? 8 : g.size <= 128 * kItems ? 32 : 0;
}

opw::quant::QuantParams ParamsOf(const Call& call, const ops::quant::Groups& g, int lanes) {
  opw::quant::QuantParams p{};
  p.groups = g.count;
  p.extent = p.chunk = g.size;
  p.chunks = 1;
  const int64_t wanted = std::min<int64_t>(
      {BlocksFor(4 * call.multiprocessors(), g.count), g.size / kLeastChunk, 65535});
  if (lanes == 0 && wanted > 1) {
    p.chunk = BlocksFor(BlocksFor(g.size, wanted), kItems) * kItems;
    p.chunks = BlocksFor(g.size, p.chunk);
  }
  return p;
}
Grid GridOf(const opw::quant::QuantParams& p, int lanes) {
  return {.blocks = std::min<int64_t>(lanes == 0 ? p.groups : BlocksFor(p.groups, kThreads / lanes),
                                      INT32_MAX),
          .threads = kThreads,
          .blocks_y = p.chunks};
}

Status PlanQuantize(const Call& call, Plan& plan) {
  const ops::quant::Groups g = ops::quant::Groups::OfQuantize(call.c);
  const int lanes = LanesOf(g);
  const bool symmetric = g.each == 1;
  const std::string_view type = CodeName(ops::TypeOf(g.floats));
  const opw::quant::QuantParams p = ParamsOf(call, g, lanes);
  const int64_t bytes = p.groups * p.chunks * DTypeBytes(ops::TypeOf(g.params));
  const int64_t least = p.chunks > 1 ? plan.TakeWorkspace(bytes) : 0,
                most = p.chunks > 1 ? plan.TakeWorkspace(bytes) : 0;
  if (p.chunks > 1) {
    Kernel* const f = call.code.Get({kFile, fmt::format("quant::Ranges<{}, {}>", type, symmetric),
                                     std::string(kParams), kThreads});
    plan.Launch(f, GridOf(p, 0), p,
                {{&p.x, Operand(0)}, {&p.least, Workspace(least)}, {&p.most, Workspace(most)}});
  }
  const std::string body =
      fmt::format("quant::Quantize<{}, {}, {}, {}>", type, lanes, g.bits, symmetric);
  Kernel* const f = call.code.Get({kFile, body, std::string(kParams), kThreads});
  plan.Launch(f, GridOf(p, lanes), p,
              {{&p.x, Operand(0)},
               {&p.values, Result(0)},
               {&p.params, Result(1)},
               {&p.least, Workspace(least)},
               {&p.most, Workspace(most)}});
  return absl::OkStatus();
}

Status PlanDequantize(const Call& call, Plan& plan) {
  const ops::quant::Groups g = ops::quant::Groups::OfDequantize(call.c);
  const int lanes = LanesOf(g);
  const opw::quant::QuantParams p = ParamsOf(call, g, lanes);
  const std::string body =
      fmt::format("quant::Dequantize<{}, {}, {}, {}, {}>", CodeName(ops::TypeOf(g.floats)),
                  CodeName(ops::TypeOf(g.params)), lanes, g.bits, g.each == 1);
  Kernel* const f = call.code.Get({kFile, body, std::string(kParams), kThreads});
  plan.Launch(f, GridOf(p, lanes), p,
              {{&p.values, Operand(0)}, {&p.params, Operand(1)}, {&p.y, Result(0)}});
  return absl::OkStatus();
}

}  // namespace

void AddQuantGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "quantize",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanQuantize});
  AddGpu(table, code, "dequantize",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanDequantize});
}

}  // namespace opwire::gpu::quant

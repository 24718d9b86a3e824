// sample on GPUs.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/sampling/gpu_params.h"

namespace opwire::gpu::sampling {
namespace {

constexpr int kMostThreads = 1024;

Status PlanSample(const Call& call, Plan& plan) {
  const opw_tensor &logits = call.operand(0), &top_k = call.operand(3);
  const std::string_view index = ops::Absent(top_k) ? "i64" : CodeName(ops::TypeOf(top_k));
  const std::string body =
      fmt::format("sampling::Sample<{}, {}>", CodeName(ops::TypeOf(logits)), index);
  Kernel* const f =
      call.code.Get({"kernels/ops/sampling/gpu.cuh", body, "sampling::SampleParams", kMostThreads});
  opw::sampling::SampleParams p{};
  p.rows = logits.shape[0];
  p.extent = logits.shape[1];
  p.site = call.attr(0).value.i;
  std::vector<Field> fields = {
      {&p.logits, Operand(0)}, {&p.key, Operand(1)}, {&p.tokens, Result(0)}};
  const auto add = [&](int operand, const void* field, int& step) {
    const opw_tensor& t = call.operand(operand);
    if (ops::Absent(t)) return;
    step = t.rank;
    fields.push_back({field, Operand(static_cast<uint32_t>(operand))});
  };
  add(2, &p.temperature, p.temperature_step);
  add(3, &p.top_k, p.top_k_step);
  add(4, &p.top_p, p.top_p_step);
  const int threads =
      static_cast<int>(std::clamp<int64_t>((p.extent + 255) / 256 * 64, 256, kMostThreads));
  plan.LaunchBytes(f, {.blocks = std::min<int64_t>(p.rows, INT32_MAX), .threads = threads}, &p,
                   sizeof p, fields);
  return absl::OkStatus();
}

}  // namespace

void AddSamplingGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "sample", {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanSample});
}

}  // namespace opwire::gpu::sampling

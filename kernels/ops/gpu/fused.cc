// Compiling a program's form, and its launch.
#include "kernels/ops/gpu/fused.h"

#include "kernels/fused/gpu_source.h"

namespace opwire::gpu {

Status PlanFused(Code& code, const std::string& name, const fused::ScalarProgram& program, std::span<const opw_tensor* const> tensors,
                 std::span<const Source> sources, Plan& plan) {
  const fused::GpuForm form = fused::FormOf(program, tensors);
  OPWIRE_ASSIGN_OR_RETURN(const Function f, code.GetText({name, "kernels/fused/primitives.cuh", fused::GpuSource(program, form)}));
  const std::vector<std::byte> params = fused::GpuParams(program, form, {});
  std::vector<Field> fields;
  const std::byte* at = params.data();
  for (const Source& s : sources) {
    fields.push_back({at, s});
    at += sizeof(void*);
  }
  fields.push_back({at, Reports()});
  plan.LaunchBytes(f, {.blocks = form.blocks(), .threads = fused::GpuForm::kThreads}, params.data(), params.size(), fields);
  return absl::OkStatus();
}

}  // namespace opwire::gpu

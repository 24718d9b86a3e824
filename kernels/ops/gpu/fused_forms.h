// Which form of a fused kernel a device runs the fastest: measured once for each class of calls, and kept (tune.h). Forms differ in who computes an element, never in how.
//
//   const fused::GpuForm rule = fused::FormOf(program, tensors);
//   const fused::GpuForm form = FastestForm(code, "fused", program, tensors, arguments, rule);
#ifndef OPWIRE_KERNELS_OPS_GPU_FUSED_FORMS_H_
#define OPWIRE_KERNELS_OPS_GPU_FUSED_FORMS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/gpu_body.h"
#include "kernels/fused/gpu_source.h"
#include "kernels/fused/gpu_tiles.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

// A kernel of one form and its parameters, which begin with the tensors' addresses and the reporter.
struct FusedLaunch {
  KernelText kernel;
  int64_t blocks;
  int threads;
  std::vector<std::byte> params;
};
template <typename Form>
FusedLaunch LaunchOf(const std::string& name, const fused::ScalarProgram& program, const Form& form, std::span<const opw_attr> arguments) {
  return {{name, "kernels/fused/primitives.cuh", fused::GpuSource(program, form)}, form.blocks(), form.threads, fused::GpuParams(program, form, arguments)};
}

// Bytes that a call moves, from which on it takes long enough to measure.
inline constexpr int64_t kLeastTuned = int64_t{32} << 20;

// From 0, of the rule's form, to `ways` - 1, each of which `launch_of` makes. 0 where nothing is measured, the call is small, or what the program raises would be a run's.
int FastestWay(Code& code, const fused::ScalarProgram& program, std::span<const opw_tensor* const> tensors, int ways, const std::function<FusedLaunch(int way)>& launch_of);

template <typename Form>
Form FastestForm(Code& code, const std::string& name, const fused::ScalarProgram& program, std::span<const opw_tensor* const> tensors, std::span<const opw_attr> arguments, const Form& rule) {
  std::vector<Form> forms = fused::FormsBeside(rule);
  forms.insert(forms.begin(), rule);
  return forms[static_cast<size_t>(FastestWay(code, program, tensors, static_cast<int>(forms.size()),
                                              [&](int way) { return LaunchOf(name, program, forms[static_cast<size_t>(way)], arguments); }))];
}

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FUSED_FORMS_H_

// A scalar program over tensors as a part of a plan, and as a separate kernel.
#ifndef OPWIRE_KERNELS_OPS_GPU_FUSED_H_
#define OPWIRE_KERNELS_OPS_GPU_FUSED_H_

#include <memory>
#include <span>
#include <string>

#include "kernels/fused/fuser.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// `tensors` are the program's inputs, then its outputs; the first output has elements. `sources`
// are their addresses. `name` is for messages. REQUIRES: program.Check().ok(), and as many
// arguments as the program has.
Status PlanFused(Code& code, const std::string& name, const fused::ScalarProgram& program,
                 std::span<const opw_tensor* const> tensors, std::span<const Source> sources,
                 Plan& plan, std::span<const opw_attr> arguments = {});

// Writes the sum of the first two tensors, each broadcast to the third, to the third; all of one
// type.
Status PlanAdd(Code& code, std::span<const opw_tensor* const, 3> tensors,
               std::span<const Source, 3> sources, Plan& plan);

// Kernels of groups for this device, compiled when an instance binds sizes.
std::shared_ptr<fused::Fuser> MakeFuser(std::shared_ptr<Code> code);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FUSED_H_

// The kernels that the catalogue's ops need on a GPU that this machine does not have.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_

#include <memory>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// The facts of a GPU that decide its plans.
struct Model {
  const char* name;
  int emulator;  // the emulated device that has its waves and shared memory
  int compute_units;
};
// Returns the GPU with this architecture: an H200 for sm_..., an MI250 for gfx...
Model ModelOf(std::string_view arch);

// Returns that GPU as an emulated device, for plans.
StatusOr<std::unique_ptr<gpu::GpuDevice>> DeviceFor(std::string_view arch);

// Returns the kernels that plans need with these element types. The plans are those of the suite's
// cases and layouts, and of rows and matrices of common sizes. Each kernel is in the list once,
// with the name of the first call that needs it. The kernels of fused rows (row_programs.h) are in
// the list, too. Generated kernels take layouts other than the dense one with f32 and bool only.
// Nothing runs.
StatusOr<std::vector<gpu::KernelText>> KernelsOf(std::string_view arch, DTypeSet types);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_

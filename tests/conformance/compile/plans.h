// The kernels that the catalogue's ops ask for on a GPU that is not there.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_

#include <memory>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// What decides plans of a GPU.
struct Model {
  const char* name;
  int emulator;  // the emulated device that has its waves and shared memory
  int compute_units;
};
// The GPU whose architecture this is: an H200 for sm_..., an MI250 for gfx...
Model ModelOf(std::string_view arch);

// That GPU as an emulated device, for plans.
StatusOr<std::unique_ptr<gpu::GpuDevice>> DeviceFor(std::string_view arch);

// What the plans of the suite's cases and layouts ask for with these element types, and those of
// rows and matrices as they are in use: each kernel once, named with the call that asked for it
// first; and those of fused rows (row_programs.h). Generated kernels take layouts other than the
// dense one with f32 and bool only. Nothing runs.
StatusOr<std::vector<gpu::KernelText>> KernelsOf(std::string_view arch, DTypeSet types);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_PLANS_H_

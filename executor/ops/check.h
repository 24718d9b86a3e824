// Runs a user's kernel against its op's reference: on a CPU between guard pages, on a GPU between
// zones of a pattern. A kernel may do anything, so this belongs into a process of its own
// (trial.h).
#ifndef OPWIRE_EXECUTOR_OPS_CHECK_H_
#define OPWIRE_EXECUTOR_OPS_CHECK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/ops/bound_op.h"
#include "executor/ops/measure.h"
#include "ir/base/status.h"
#include "kernels/device/device.h"
#include "kernels/jit/manifest.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

struct CheckOptions {
  bool thorough = false;  // every type and many sizes; else a small case of each type
  bool measure = false;
  uint64_t seed = 1;  // of the inputs
  int report = 1;     // the descriptor to which a fault is reported (guarded.h)
};

struct CheckReport {
  int cases = 0;
  int refused = 0;                 // refused by the kernel's own `supports`
  std::vector<std::string> worst;  // by type: "f32: 3.1e-07 of 1e-04 allowed"
  std::vector<Measurement> measurements;
};

// Checks that the kernel agrees with the reference. Types and shapes must be equal. Results must be
// within the manifest's tolerance of the reference computed in f64 (exact for integers). The kernel
// must not read or write outside its tensors. If the manifest says so, two runs must give equal
// bits. Indices out of their domain must be reported and must not crash the kernel.
// FAILED_PRECONDITION with the first case that fails, its sizes, element and values.
StatusOr<CheckReport> CheckKernel(const jit::OpManifest& op, const jit::OpVariantSpec& variant,
                                  const opw_kernel& kernel, const TrialPlace& place,
                                  const CheckOptions& options);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_CHECK_H_

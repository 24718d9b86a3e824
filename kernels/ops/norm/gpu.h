// layer_norm and rms_norm of rows on GPUs, for the families that use them.
#ifndef OPWIRE_KERNELS_OPS_NORM_GPU_H_
#define OPWIRE_KERNELS_OPS_NORM_GPU_H_

#include <optional>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::norm {

// Dense rows, and their addresses.
struct NormRows {
  DType type;
  int64_t rows, extent;
  double eps;
  bool layer;  // false: rms_norm
  Source x{}, y{};
  std::optional<Source> weight = std::nullopt, bias = std::nullopt;
  std::optional<Source>
      residual = std::nullopt,
      sum = std::nullopt;  // null, or x + residual is normalised, and it is stored to `sum`
};
Status PlanNormRows(const Call& call, const NormRows& n, Plan& plan);

}  // namespace opwire::gpu::norm

#endif  // OPWIRE_KERNELS_OPS_NORM_GPU_H_

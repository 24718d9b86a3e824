// Products of matrices on GPUs, for the families that use them, and the variants that only
// multiply.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_H_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

#include <optional>
#include <vector>

#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/matmul/activation.h"
#include "kernels/ops/matmul/gpu_params.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::gpu::matmul {

// z = activation(x y + bias), with sums in the computing type of `type`. cuBLASLt may round them to
// `result` before bias and activation.
struct Product {
  ops::matmul::MatmulShapes shapes;
  DType type;    // of x, y and bias
  DType result;  // of z: `type`, or its computing type; for 8-bit floats any type except f64
  Source x{}, y{}, z{};
  std::optional<Source> bias = std::nullopt;  // one for each column of z
  int64_t bias_n = 1;                         // stride in elements
  ops::matmul::Activation activation = ops::matmul::Activation::kNone;
  struct Norm {
    std::optional<Source> weight;  // one for each term
    double eps;
  };
  // For 8-bit floats: y's type, and f32 factors of the sums. There is one for all, or one for each
  // row (of scale_x) or column (of scale_y).
  struct Scaled {
    DType y_type;
    Source x, y;
    int64_t m = 0, n = 0;  // strides in elements; 0: one factor
    bool one_x, one_y;     // for all
  };
  std::optional<Scaled> scaled = std::nullopt;
  std::optional<Norm> norm =
      std::nullopt;  // x is normalised first, as in rms_norm. For PlanVectors only
  bool tf32 = false;
  bool adds = false;  // x y is added to the values in z. REQUIRES: no bias or activation
};
Product MatmulOf(const opw_call* c);

// Every type and all strides.
Status PlanTiles(const Call& call, const Product& p, Plan& plan);
// Floats with few rows, at most `most`.
const char* SupportsVectors(const ops::matmul::MatmulShapes& s, int64_t most);
Status PlanVectors(const Call& call, const Product& p, Plan& plan);
// Floats, by cuBLASLt.
const char* SupportsCublasLt(const Product& p);
Status PlanCublasLt(const Call& call, const Product& p, Plan& plan);
// Whether cuBLASLt applies the epilogue itself, without PlanFinish.
bool CublasLtFinishes(const Product& p);
// 16-bit floats, by our kernel for Hopper, if cuBLASLt does not apply the epilogue. REQUIRES:
// Code::hopper().
const char* SupportsHopper(const Product& p);
Status PlanHopper(const Call& call, const Product& p, Plan& plan);
// The launch of its kernel of tiles. REQUIRES: SupportsTilesOfHopper(p) is null.
struct HopperForm {
  int columns;  // of a tile
  Grid grid;
  opw::matmul::HopperParams params;
  // The fields of `params` that are addresses, with `at` as the address of `params` in the launch's
  // parameters.
  std::vector<Field> FieldsAt(const opw::matmul::HopperParams* at, const Product& p) const;
};
const char* SupportsTilesOfHopper(const Product& p);
HopperForm HopperFormOf(const Product& p, int multiprocessors);
// Applies p's bias, activation and rounding to the dense sums in z of `sums`, which may be p's z.
Status PlanFinish(const Call& call, const Product& p, const Product& sums, Plan& plan);
// Why cuBLASLt cannot be opened, as GpuKernel::without.
const char* WithoutCublasLt(bool open);

}  // namespace opwire::gpu::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

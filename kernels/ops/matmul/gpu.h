// Products of matrices on GPUs, for the families that have them, and the variants that are no more
// than one.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_GPU_H_
#define OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

#include <optional>
#include <vector>

#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/matmul/activation.h"
#include "kernels/ops/matmul/gpu_params.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::gpu {

// z = activation(x y + bias), of sums in the type that `type` computes in; cuBLASLt may round them
// to `result` before bias and activation.
struct Product {
  ops::MatmulShapes shapes;
  DType type;    // of x, y and bias
  DType result;  // of z: `type`, or what it computes in; of 8-bit floats any but f64
  Source x{}, y{}, z{};
  std::optional<Source> bias = std::nullopt;  // one for each column of z
  int64_t bias_n = 1;                         // elements apart
  ops::Activation activation = ops::Activation::kNone;
  struct Norm {
    std::optional<Source> weight;  // one for each term
    double eps;
  };
  // Of 8-bit floats: y's type, and f32 that sums are multiplied by, one for all or one for each row
  // (of scale_x) or column (of scale_y).
  struct Scaled {
    DType y_type;
    Source x, y;
    int64_t m = 0, n = 0;  // elements apart; 0: one
    bool one_x, one_y;     // for all
  };
  std::optional<Scaled> scaled = std::nullopt;
  std::optional<Norm> norm =
      std::nullopt;  // x is normalised first, as rms_norm does. Of PlanVectors only
  bool tf32 = false;
  bool adds = false;  // x y is added to what z holds. REQUIRES: no bias or activation
};
Product MatmulOf(const opw_call* c);

// Every type and all strides.
Status PlanTiles(const Call& call, const Product& p, Plan& plan);
// Floats of few rows. `most`: how many at the most.
const char* SupportsVectors(const ops::MatmulShapes& s, int64_t most);
Status PlanVectors(const Call& call, const Product& p, Plan& plan);
// Floats, by cuBLASLt.
const char* SupportsCublasLt(const Product& p);
Status PlanCublasLt(const Call& call, const Product& p, Plan& plan);
// Whether cuBLASLt finishes it itself, without PlanFinish.
bool CublasLtFinishes(const Product& p);
// 16-bit floats, by a kernel of ours for Hopper, where cuBLASLt does not finish it. REQUIRES:
// Code::hopper().
const char* SupportsHopper(const Product& p);
Status PlanHopper(const Call& call, const Product& p, Plan& plan);
// What its kernel of tiles is launched with. REQUIRES: SupportsTilesOfHopper(p) is null.
struct HopperForm {
  int columns;  // of a tile
  Grid grid;
  opw::matmul::HopperParams params;
  // `params` as it lies in what is launched: its fields that are addresses.
  std::vector<Field> FieldsAt(const opw::matmul::HopperParams* at, const Product& p) const;
};
const char* SupportsTilesOfHopper(const Product& p);
HopperForm HopperFormOf(const Product& p, int multiprocessors);
// p's bias, activation and rounding, of what `sums` left dense in its z, which may be p's.
Status PlanFinish(const Call& call, const Product& p, const Product& sums, Plan& plan);
// Why cuBLASLt cannot be opened, as GpuKernel::without.
const char* WithoutCublasLt(bool open);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_MATMUL_GPU_H_

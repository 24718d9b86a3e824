// Parameters of the kernels of normalisation's gradients on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_NORM_GPU_BACKWARD_PARAMS_H_
#define OPWIRE_KERNELS_OPS_NORM_GPU_BACKWARD_PARAMS_H_

namespace opw::norm {

// grad, x, residual and grad_x dense, as [rows, extent]; weight as [extent].
struct BackwardParams {
  const void* grad;
  const void* x;
  const void* weight;    // null: 1
  const void* residual;  // if rows are walked: added to grad_x; null: none
  void* grad_x;
  void* scales;    // RowScale of each row, written
  void* states;    // State of each chunk of each row, if rows are split
  void* partials;  // if rows are walked: as ColumnsParams::partials
  double eps;
  long long rows, extent;
  long long chunks, chunk;  // of a row, and elements of each chunk except the last
};

// Of a block that adds columns: neighbouring threads, and rows at a time.
inline constexpr int kColumnLanes = 32, kColumnSlices = 8;
inline constexpr int kReduceSlices = 32;  // of the blocks' sums
struct ColumnsParams {
  const void* grad;
  const void* x;
  const void* scales;
  void* partials;  // in the computing type: [weight or bias, block of rows, extent]
  long long rows, extent;
  long long each;  // rows of a block except the last
};

struct SumsParams {
  const void* partials;
  void* grad_weight;
  void* grad_bias;  // null: not requested
  long long extent, parts;
};

}  // namespace opw::norm

#endif  // OPWIRE_KERNELS_OPS_NORM_GPU_BACKWARD_PARAMS_H_

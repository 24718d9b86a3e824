// Parameters of the normalisation kernels on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_NORM_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_NORM_GPU_PARAMS_H_

namespace opw::norm {

// x, y, residual and sum dense, as [rows, extent]; weight and bias as [extent].
struct RowsParams {
  const void* x;
  void* y;
  const void* weight;    // null: 1
  const void* bias;      // null: 0
  const void* residual;  // null: x is normalised, not x + residual
  void* sum;             // x + residual
  void* partials;        // Moments of each chunk of each row, if rows are split
  double eps;
  long long rows, extent;
  long long chunks, chunk;  // of a row, and elements of each chunk except the last
};

}  // namespace opw::norm

#endif  // OPWIRE_KERNELS_OPS_NORM_GPU_PARAMS_H_

// Parameters of the kernels of softmax's gradients on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_SOFTMAX_GPU_BACKWARD_PARAMS_H_
#define OPWIRE_KERNELS_OPS_SOFTMAX_GPU_BACKWARD_PARAMS_H_

namespace opw::softmax {

// grad, y and grad_x dense, as [rows / inner, extent, inner].
struct BackwardParams {
  const void* grad;
  const void* y;
  void* grad_x;
  void* partials;  // the sum of each chunk of each row, if rows are split
  long long rows, extent, inner;
  long long chunks, chunk;  // of a row, and elements of each chunk except the last
};

}  // namespace opw::softmax

#endif  // OPWIRE_KERNELS_OPS_SOFTMAX_GPU_BACKWARD_PARAMS_H_

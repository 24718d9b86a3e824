// Parameters of the softmax kernels on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_SOFTMAX_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_SOFTMAX_GPU_PARAMS_H_

namespace opw::softmax {

// x and y dense, as [rows / inner, extent, inner].
struct RowsParams {
  const void* x;
  void* y;
  void* partials;  // Online of each chunk of each row, if rows are split
  long long rows, extent, inner;
  long long chunks, chunk;  // of a row, and elements of each chunk except the last
};

}  // namespace opw::softmax

#endif  // OPWIRE_KERNELS_OPS_SOFTMAX_GPU_PARAMS_H_

// Parameters of the reductions and running sums on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_REDUCE_GPU_PARAMS_H_

namespace opw::reduce {

// x as [columns / inner, extent, inner] is reduced along its middle axis, in chunks: block y of the
// grid processes the elements starting with y * chunk.
struct ReduceParams {
  const void* x;
  void* y;  // results as [columns], or if they are not final, states as [columns / inner, chunks,
            // inner]
  long long columns, extent, inner;
  long long chunks, chunk;
  long long count;    // elements of each result
  long long vectors;  // of neighbouring columns that a thread processes: number in all of x
  int lane_bits;      // logarithm of the number of neighbouring vectors per block
};

// y[o, i, k] = the sum of x[o, 0..i, k], both dense as [columns / inner, extent, inner].
struct ScanParams {
  const void* x;
  void* y;
  void* sums;  // of the chunks, as [columns / inner, chunks, inner]
  long long columns, extent, inner;
  long long chunks, chunk;
};

}  // namespace opw::reduce

#endif  // OPWIRE_KERNELS_OPS_REDUCE_GPU_PARAMS_H_

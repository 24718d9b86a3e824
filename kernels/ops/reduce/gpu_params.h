// Parameters of the folds and running sums on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_REDUCE_GPU_PARAMS_H_

namespace opw::reduce {

// x as [columns / inner, extent, inner] is folded along its middle, in chunks of it: block y of the
// grid takes the elements from y * chunk on.
struct FoldParams {
  const void* x;
  void* y;  // results as [columns], or where they are not final states as [columns / inner, chunks,
            // inner]
  long long columns, extent, inner;
  long long chunks, chunk;
  long long count;    // elements behind each result
  long long vectors;  // of neighbouring columns that a thread works on: of all of x
  int lane_bits;      // neighbouring vectors a block: 2 to the power of it
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

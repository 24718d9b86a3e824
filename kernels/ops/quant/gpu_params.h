// Parameters of quantising on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_QUANT_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_QUANT_GPU_PARAMS_H_

namespace opw::quant {

// Groups of `extent` neighbours, in chunks: block y of the grid processes those starting with y *
// chunk. `chunk` is an even number.
struct QuantParams {
  const void* x;  // floats that are read
  void* y;        // floats that are written
  void* values;   // integers
  void* params;   // [groups, 1 or 2]
  void* least;    // [groups, chunks], if there are several chunks
  void* most;
  long long groups, extent;
  long long chunks, chunk;
};

}  // namespace opw::quant

#endif  // OPWIRE_KERNELS_OPS_QUANT_GPU_PARAMS_H_

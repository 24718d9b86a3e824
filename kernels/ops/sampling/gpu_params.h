// Parameters of sampling on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_SAMPLING_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_SAMPLING_GPU_PARAMS_H_

namespace opw::sampling {

// logits [rows, extent]. temperature, top_k and top_p are null, or have an element per row if their
// `step` is 1, or one element.
struct SampleParams {
  const void* logits;
  const void* key;
  const float* temperature;
  const void* top_k;
  const float* top_p;
  long long* tokens;
  long long rows, extent, site;
  int temperature_step, top_k_step, top_p_step;
};

}  // namespace opw::sampling

#endif  // OPWIRE_KERNELS_OPS_SAMPLING_GPU_PARAMS_H_

// Parameters of the kernels on GPUs that make values, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_CREATE_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_CREATE_GPU_PARAMS_H_

namespace opw::create {

struct FillParams {
  void* y;
  long long elements;
  unsigned long long bits;  // of one element
};

struct ArangeParams {
  const void* start;
  const void* step;
  void* y;
  long long elements;
};

// a and b are low and high, mean and std, or x and p.
struct RandomParams {
  const void* key;
  const void* a;
  const void* b;
  void* y;
  long long elements, site;
};

}  // namespace opw::create

#endif  // OPWIRE_KERNELS_OPS_CREATE_GPU_PARAMS_H_

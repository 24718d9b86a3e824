// Parameters of the optim kernels on GPUs, for both compilers. A launch has at most kTensors
// tensors, so that its parameters stay below 4 KiB.
#ifndef OPWIRE_KERNELS_OPS_OPTIM_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_OPTIM_GPU_PARAMS_H_

namespace opw::optim {

inline constexpr int kTensors = 48;  // per launch
inline constexpr int kThreads = 256;
inline constexpr int kChunkVectors =
    4 * kThreads;  // 16-byte vectors of the first list's elements in a chunk

// The chunks of a launch's tensors, one after the other. Those of tensor t begin at first[t], and
// their total number is in first[count].
struct Tensors {
  long long elements[kTensors];
  unsigned first[kTensors + 1];
  int count;
};

// Lists of parameters, gradients and states; results are the lists without the gradients.
template <int kLists>
struct StepParams {
  const void* in[kLists][kTensors];
  void* out[kLists - 1][kTensors];
  Tensors tensors;
  const float* lr;
  const long long* step;      // null: the op has none
  const float* grad_scale;    // null: 1
  const unsigned char* skip;  // null: false
  double sign;                // -1: ascends the gradient
  double weight_decay, beta1, rest1, beta2, rest2,
      eps;  // rest: 1 - beta; sgd's momentum and 1 - dampening are the first two
  double log_beta1, log_beta2;  // adamw and lamb with bias correction
  // lamb: the sums of squares of the launch's chunks, of parameters and then of updates, which are
  // `sums_apart` apart. `coefficients` has one for each of the list's tensors; `places` are the
  // indices of the launch's tensors in it.
  void* sums;
  long long sums_apart;
  const void* coefficients;
  int places[kTensors];
  void* copies[kTensors];  // of the new parameters, in another type
};

struct ScaleParams {
  const void* in[kTensors];
  void* out[kTensors];
  Tensors tensors;
  const float* factor;
  unsigned char* overflow;  // 0 before the first launch
};

struct SquareParams {
  const void* in[kTensors];
  Tensors tensors;
  void* sums;  // of the launch's chunks
};
struct NormParams {
  const void* sums;        // of all chunks of all tensors
  const long long* first;  // by tensor, its first chunk; then the number of all
  void* norms;
  void* norm;
  long long tensors;
};

struct CoefficientParams {
  const void* sums;           // of all chunks of all tensors, of parameters and then of updates
  const long long* first;     // by tensor, its first chunk; then the number of all
  const unsigned char* skip;  // null: false
  void* coefficients;
  double least, most;
  long long tensors;
};

}  // namespace opw::optim

#endif  // OPWIRE_KERNELS_OPS_OPTIM_GPU_PARAMS_H_

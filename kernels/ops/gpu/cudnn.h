// Graphs of cuDNN for the ops that use it: its attention and convolution, and the gradients of
// both. cudnn.cc, which alone includes the library's header-only frontend, is built if that and the
// library's headers are found; otherwise cudnn_absent.cc replaces it. The library itself is opened
// when it is first needed: OPWIRE_CUDNN may name its file or folder.
#ifndef OPWIRE_KERNELS_OPS_GPU_CUDNN_H_
#define OPWIRE_KERNELS_OPS_GPU_CUDNN_H_

#include <cstdint>
#include <memory>
#include <span>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

// One tensor of a graph. Strides in elements; addresses have at least 16 bytes of alignment.
struct CudnnTensor {
  int64_t extents[5], strides[5];
  int rank = 4;
};

// f16 or bf16, [B, H, S, D]; logsumexp f32, [B, Hq, Sq, 1]. Masks as in the op definition.
struct CudnnAttention {
  DType type;
  CudnnTensor query, key, value, output, log_sum_exp;
  bool causal;
  int64_t window;  // 0: none
  float scale;
  // For the gradient only.
  CudnnTensor grad, grad_query, grad_key, grad_value;
  bool deterministic;
};

// f32 without tf32, f16 or bf16: x [N, C, I...], w [Cout, C / groups, K...] and y [N, Cout, O...],
// with 2 or 3 spatial axes. One of them is computed from the other two, as a convolution, or as its
// gradient by x or by w. Sums are in f32.
struct CudnnConvolution {
  enum Made { kX, kW, kY };
  DType type;
  Made made;
  CudnnTensor x, w, y;
  int64_t stride[3], padding[3], dilation[3];
  bool deterministic;
};

class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Puts it on the stream. `addresses` of the forward graph are query, key, value, output and
  // logsumexp. The gradient's are these, then grad, grad_query, grad_key and grad_value. A
  // convolution's are its two operands, in the order x, w, y, and the result. From one thread at a
  // time.
  virtual Status Execute(Stream stream, std::span<void* const> addresses,
                         void* workspace) const = 0;
};

// Null if cuDNN is available. Otherwise the reason, in static memory. Without `open` it returns
// only reasons that are known before the library is opened.
const char* WithoutCudnn(bool open = true);

// Equal calls share a graph. UNIMPLEMENTED if the library has no kernel for it, with the library's
// message. Uses the device's context, on any thread. Takes 0.1 s and more, or some milliseconds if
// the user's cache has it.
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(Code& code,
                                                                  const CudnnAttention& call);
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(Code& code,
                                                                   const CudnnAttention& call);

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(Code& code,
                                                               const CudnnConvolution& call);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_CUDNN_H_

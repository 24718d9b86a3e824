// Graphs of cuDNN, as far as ops here are served by it: its attention and convolution and the
// gradients of both. cudnn.cc, which alone includes the library's header-only frontend, is built
// where that and the library's headers are found; cudnn_absent.cc stands in for it elsewhere. The
// library itself is opened when it is first asked for: OPWIRE_CUDNN may name its file or folder.
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

// f16 or bf16, [B, H, S, D]; logsumexp f32, [B, Hq, Sq, 1]. Masks as the row says.
struct CudnnAttention {
  DType type;
  CudnnTensor query, key, value, output, log_sum_exp;
  bool causal;
  int64_t window;  // 0: none
  float scale;
  // Of the gradient alone.
  CudnnTensor grad, grad_query, grad_key, grad_value;
  bool deterministic;
};

// f32, without tf32, f16 or bf16: x [N, C, I...], w [Cout, C / groups, K...] and y [N, Cout, O...]
// of 2 or 3 spatial axes, of which one is made of the other two as a convolution, its gradient by x
// or by w. Sums are f32.
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
  // Puts it on the stream. `addresses`: of the forward graph query, key, value, output and
  // logsumexp; of the gradient's these, then grad, grad_query, grad_key and grad_value; of a
  // convolution's the two that are given, in the order x, w, y, and what is made. From one thread
  // at a time.
  virtual Status Execute(Stream stream, std::span<void* const> addresses,
                         void* workspace) const = 0;
};

// Null: cuDNN is there. Otherwise why not, in static memory; without `open` only what is known
// before the library is opened.
const char* WithoutCudnn(bool open = true);

// Equal calls share a graph. UNIMPLEMENTED: the library has no kernel for it, with what it says. On
// the device's context, from any thread; takes 0.1 s and more, or some milliseconds where the
// user's cache has it.
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(Code& code,
                                                                  const CudnnAttention& call);
StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(Code& code,
                                                                   const CudnnAttention& call);

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(Code& code,
                                                               const CudnnConvolution& call);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_CUDNN_H_

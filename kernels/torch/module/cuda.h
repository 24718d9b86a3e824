// A GPU of CUDA, by what of libtorch knows no CUDA header.
#ifndef OPWIRE_KERNELS_TORCH_MODULE_CUDA_H_
#define OPWIRE_KERNELS_TORCH_MODULE_CUDA_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace opwire::torch_module {

// Loads what libtorch has for CUDA, and puts the module's allocator in place of its own. Throws
// where it is not there, has no such device, or brings a second cuDNN into the process.
void OpenCuda(c10::Device device);

// While it lives, work of this thread goes to that stream of the driver, on that device.
class OnStream {
 public:
  OnStream(c10::Device device, void* stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;

 private:
  c10::Device before_;
  c10::Stream stream_before_;
};

}  // namespace opwire::torch_module

#endif  // OPWIRE_KERNELS_TORCH_MODULE_CUDA_H_

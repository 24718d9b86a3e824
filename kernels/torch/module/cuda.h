// A CUDA GPU, through those parts of libtorch that need no CUDA header.
#ifndef OPWIRE_KERNELS_TORCH_MODULE_CUDA_H_
#define OPWIRE_KERNELS_TORCH_MODULE_CUDA_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace opwire::torch_module {

// Loads libtorch's CUDA library, and replaces its allocator by the module's. Throws if the library
// is missing, has no such device, or brings a second cuDNN into the process.
void OpenCuda(c10::Device device);

// While it exists, work of this thread goes to that stream of the driver, on that device.
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

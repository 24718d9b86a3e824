// A user's GPU variant as a kernel: its object on the device, launched as the manifest says.
#ifndef OPWIRE_KERNELS_OPS_GPU_USER_KERNEL_H_
#define OPWIRE_KERNELS_OPS_GPU_USER_KERNEL_H_

#include <memory>
#include <string>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/device/device.h"
#include "kernels/jit/manifest.h"

namespace opwire::gpu {

class UserKernel {
 public:
  // Loads an object that was compiled of RequestFor(op, variant, ...) for this very device, a GPU,
  // which outlives it. Any thread.
  static StatusOr<std::shared_ptr<const UserKernel>> Load(const jit::OpManifest& op,
                                                          const jit::OpVariantSpec& variant,
                                                          const std::string& object,
                                                          Device& device);
  virtual ~UserKernel() = default;

  // Whose context is this object.
  virtual opw_kernel kernel() const = 0;
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_USER_KERNEL_H_

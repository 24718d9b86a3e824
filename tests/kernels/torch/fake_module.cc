// What passes for opwire_torch.so and is of another version.
#include "kernels/torch/interface.h"

extern "C" __attribute__((visibility("default"))) const opw_torch_module opwire_torch = {
    OPW_TORCH_VERSION + 1, OPW_ABI_VERSION, "0.0.0", nullptr, nullptr, nullptr, nullptr};

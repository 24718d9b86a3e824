// A product of matrices by oneDNN, with its epilogue, for the families that use it. Not for files
// built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_
#define OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_

#include <memory>

#include "kernels/ops/matmul/activation.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops::matmul {

// z = activation(x y + bias), with sums in f32. REQUIRES: OneDnnRefuses returns null; k > 0; z has
// elements; the activation is not relu, as oneDNN's turns NaN into 0.
struct OneDnnSpec {
  MatmulShapes shapes;
  uint8_t type;         // of x, y and bias: OPW_F32, or OPW_BF16 if OneDnnIsNative
  uint8_t result;       // of z: `type`, or OPW_F32
  bool biased = false;  // by one number for each column, dense
  Activation activation = Activation::kNone;
  bool adds = false;  // x y is added to the values in z
};

// Why oneDNN does not support such matrices; null if it does.
const char* OneDnnRefuses(const MatmulShapes& s);
// Whether it is multiplied directly, without f32 copies.
bool OneDnnIsNative(uint8_t type);

class OneDnnProduct {
 public:
  // Null if oneDNN cannot.
  static std::unique_ptr<OneDnnProduct> Make(const OneDnnSpec& spec, int threads);
  virtual ~OneDnnProduct() = default;

  virtual int64_t scratch_bytes() const = 0;
  // In pieces, until the run is stopped; false: oneDNN failed. `scratch` has scratch_bytes().
  virtual bool Run(const opw_call* c, const void* x, const void* y, const void* bias, void* z,
                   void* scratch) = 0;
};

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_

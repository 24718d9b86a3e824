// A product of matrices by oneDNN, with what becomes of its sums, for the families that have them.
// Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_
#define OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_

#include <memory>

#include "kernels/ops/matmul/activation.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops {

// z = activation(x y + bias), of sums in f32. REQUIRES: OneDnnRefuses nothing; k > 0; z has
// elements; the activation is not relu, of which oneDNN's makes 0 of NaN.
struct OneDnnSpec {
  MatmulShapes shapes;
  uint8_t type;         // of x, y and bias: OPW_F32, or OPW_BF16 where OneDnnIsNative
  uint8_t result;       // of z: `type`, or OPW_F32
  bool biased = false;  // by one number for each column, dense
  Activation activation = Activation::kNone;
  bool adds = false;  // x y is added to what z holds
};

// Why oneDNN takes no such matrices; null: it does.
const char* OneDnnRefuses(const MatmulShapes& s);
// Multiplied as it is, without f32 copies.
bool OneDnnIsNative(uint8_t type);

class OneDnnProduct {
 public:
  // Null: oneDNN cannot.
  static std::unique_ptr<OneDnnProduct> Make(const OneDnnSpec& spec, int threads);
  virtual ~OneDnnProduct() = default;

  virtual int64_t scratch_bytes() const = 0;
  // In pieces, until the run is stopped; false: oneDNN failed. `scratch` has scratch_bytes().
  virtual bool Run(const opw_call* c, const void* x, const void* y, const void* bias, void* z,
                   void* scratch) = 0;
};

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_MATMUL_ONEDNN_PRODUCT_H_

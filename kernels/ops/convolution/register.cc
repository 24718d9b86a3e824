// The convolution family's variants.
#include "kernels/ops/convolution/convolution.h"
#include "kernels/ops/families.h"

namespace opwire::ops::convolution {

void AddConvolution(VariantTable& table, const Isa& isa) {
  AddConvolutionReference(table);
  AddConvolutionOneDnn(table, isa);
}

}  // namespace opwire::ops::convolution

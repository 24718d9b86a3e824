// The convolution family's variants.
#include "kernels/ops/convolution/convolution.h"
#include "kernels/ops/families.h"

namespace opwire::ops {

void AddConvolution(VariantTable& table, const Isa&) { AddConvolutionReference(table); }

}  // namespace opwire::ops

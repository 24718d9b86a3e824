// The parts of the convolution family.
#ifndef OPWIRE_KERNELS_OPS_CONVOLUTION_CONVOLUTION_H_
#define OPWIRE_KERNELS_OPS_CONVOLUTION_CONVOLUTION_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::convolution {

void AddConvolutionReference(VariantTable& table);
void AddConvolutionOneDnn(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::convolution

#endif  // OPWIRE_KERNELS_OPS_CONVOLUTION_CONVOLUTION_H_

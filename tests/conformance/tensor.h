// Tensors of the conformance suite: values in long double, which holds every element of every type
// exactly, and the suite's own reading and rounding of each format.
#ifndef OPWIRE_TESTS_CONFORMANCE_TENSOR_H_
#define OPWIRE_TESTS_CONFORMANCE_TENSOR_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/dtype.h"

namespace opwire::conformance {

using Real = long double;
using Extents = std::vector<int64_t>;

struct Tensor {
  DType dtype = DType::kInvalid;
  Extents shape;
  std::vector<Real> values;  // row-major
  Encoding encoding = Encoding::kDense;
  std::string encoded;  // else the bytes that say so

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return static_cast<int64_t>(values.size()); }
};

int64_t Count(const Extents& shape);

bool IsFloat(DType t);
bool IsSigned(DType t);
int BitsOf(DType t);

// The type that elementwise ops of `t` compute in.
DType ComputingType(DType t);

// An element's value, and the nearest element (ties to even; beyond the range infinity, or NaN for
// f8e4m3). Integers must fit.
Real Decode(DType t, const void* element);
void Encode(DType t, Real value, void* element);
Real Rounded(DType t, Real value);

// The distance of neighbouring numbers of a floating type at `value`; at least its smallest
// subnormal.
Real Ulp(DType t, Real value);
// What `value`, off by up to `error`, may be off once it is rounded: error may have brought it to
// wider distances.
inline Real WithRounding(DType t, Real value, Real error) {
  return error + Ulp(t, std::fabs(value) + error) / 2;
}
Real Largest(DType t);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_TENSOR_H_

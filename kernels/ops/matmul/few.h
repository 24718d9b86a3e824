// Products of a few rows with a matrix whose columns are contiguous, as in a layer's weight. They
// are bound by reading the matrix, which is read once, whatever its type.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_FEW_H_
#define OPWIRE_KERNELS_OPS_MATMUL_FEW_H_

#include <stdint.h>

namespace opwire::ops::matmul {

inline constexpr int kMostFewRows = 4;
// Columns that are completed together: a range begins at a multiple of this number.
inline constexpr int kFewColumns = 16;

struct FewCall {
  const float* x;    // rows of k elements, one after the other
  const void* y;     // column j begins at element j * y_n
  const void* bias;  // [n], or null
  void* z;           // rows are z_m apart, columns next to each other
  int64_t k, y_n, z_m;
  int activation;  // an Activation's number
};
// z[i, j] = activation(sum over l of x[i, l] * y[l, j] + bias[j]) for begin <= j < end, computed in
// f32.
using FewLoop = void (*)(const FewCall& c, int64_t begin, int64_t end);
struct FewLoops {
  FewLoop by_type[16][kMostFewRows];  // by type of y, bias and z, and by rows less one
};

const FewLoops& FewLoopsAvx2();
const FewLoops& FewLoopsAvx512();

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_FEW_H_

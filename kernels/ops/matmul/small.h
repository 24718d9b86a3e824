// Own products of matrices: small ones, where a library's call costs more than the work, element
// types that it lacks, and dot products, which it sums in order.
#ifndef OPWIRE_KERNELS_OPS_MATMUL_SMALL_H_
#define OPWIRE_KERNELS_OPS_MATMUL_SMALL_H_

#include <stdint.h>

namespace opwire::ops::matmul {

// z[i, j] = sum over l of x[i * x_m + l * x_k] * y[l * y_k + j] for i < m, j < n; z's rows are z_m
// apart.
using MatmulLoop = void (*)(void* z, const void* x, const void* y, int64_t m, int64_t n, int64_t k,
                            int64_t x_m, int64_t x_k, int64_t y_k, int64_t z_m);
// *z = sum over l < k of x[l] * y[l], or of x[l].
using DotLoop = void (*)(void* z, const void* x, const void* y, int64_t k);
using SumLoop = void (*)(void* z, const void* x, int64_t k);
// By element type; null: none.
struct MatmulLoops {
  MatmulLoop by_type[16];
  DotLoop dot[16];       // in blocks, whose sums are added in pairs
  DotLoop dot_part[16];  // the same; z is of the computing type
  SumLoop dot_end[16];   // x is of the computing type
};

const MatmulLoops& MatmulLoopsAvx2();
const MatmulLoops& MatmulLoopsAvx512();

}  // namespace opwire::ops::matmul

#endif  // OPWIRE_KERNELS_OPS_MATMUL_SMALL_H_

// The processor's instructions, by the compiler's own header.
#ifndef OPWIRE_KERNELS_OPS_SIMD_INTRINSICS_H_
#define OPWIRE_KERNELS_OPS_SIMD_INTRINSICS_H_

// It leaves a vector undefined on purpose where all lanes are written.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#endif  // OPWIRE_KERNELS_OPS_SIMD_INTRINSICS_H_

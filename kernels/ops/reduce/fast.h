// Folds of contiguous elements, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_FAST_H_
#define OPWIRE_KERNELS_OPS_REDUCE_FAST_H_

#include <stdint.h>

namespace opwire::ops {

// y[r] = fold of the n elements at x + r * n, divided by `divisor` where the op is a mean.
using FoldRows = void (*)(void* y, const void* x, int64_t rows, int64_t n, double divisor);
// y[j] = fold over r < rows of x[r * stride + j], for j < columns.
using FoldColumns = void (*)(void* y, const void* x, int64_t rows, int64_t columns, int64_t stride, double divisor);
// The index of the extreme of n elements.
using ArgRow = int64_t (*)(const void* x, int64_t n);

struct FoldLoops {
  const char* op;
  int64_t partial_bytes[16];  // of a partial result
  FoldRows rows[16];          // by element type; null: none
  FoldRows partial[16];       // to the computing type,
  FoldRows finish[16];        // and from it
  FoldColumns columns[16];
};
inline constexpr int kFoldCount = 6;
struct ReduceLoops {
  FoldLoops folds[kFoldCount];
  ArgRow argmax[16], argmin[16];
};

const ReduceLoops& ReduceLoopsAvx2();
const ReduceLoops& ReduceLoopsAvx512();

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_REDUCE_FAST_H_

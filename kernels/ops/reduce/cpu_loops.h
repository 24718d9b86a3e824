// Reductions of contiguous elements, for the files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_REDUCE_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_REDUCE_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::reduce {

// y[r] = reduction of the n elements at x + r * n, divided by `divisor` if the op is a mean.
using ReduceRows = void (*)(void* y, const void* x, int64_t rows, int64_t n, double divisor);
// y[j] = reduction over r < rows of x[r * stride + j], for j < columns.
using ReduceColumns = void (*)(void* y, const void* x, int64_t rows, int64_t columns,
                               int64_t stride, double divisor);

struct ReduceLoops {
  const char* op;
  int64_t partial_bytes[16];  // of a partial result
  ReduceRows rows[16];        // by element type; null: not available
  ReduceRows partial[16];     // to the computing type,
  ReduceRows finish[16];      // and from it
  ReduceColumns columns[16];
  ReduceColumns partial_columns[16];
  ReduceColumns finish_columns[16];
};
inline constexpr int kReduceCount = 7;

// The index of the extreme of n elements, and whether an element precedes another.
struct ArgLoops {
  int64_t (*row)(const void* x, int64_t n);
  bool (*beyond)(const void* candidate, const void* best);
};
// Running sums. They continue from *sum, of the computing type, and store the last sum there. `row`
// sums n elements. `columns` sums each of some columns: y[r * stride + j] is the sum of x[0 .. r *
// stride + j].
struct CumsumLoops {
  void (*row)(void* y, const void* x, int64_t n, void* sum);
  void (*columns)(void* y, const void* x, int64_t rows, int64_t columns, int64_t stride,
                  void* sums);
  int64_t sum_bytes;
};
// By element type; null: not available.
struct ScanLoops {
  ArgLoops argmax[16], argmin[16];
  CumsumLoops cumsum[16];
};

// Arrays of kReduceCount elements.
const ReduceLoops* ReductionsAvx2();
const ReduceLoops* ReductionsAvx512();
const ScanLoops& ScansAvx2();
const ScanLoops& ScansAvx512();

}  // namespace opwire::ops::reduce

#endif  // OPWIRE_KERNELS_OPS_REDUCE_CPU_LOOPS_H_

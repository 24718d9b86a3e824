// The sort family's functions in the files that are built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SORT_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_SORT_CPU_LOOPS_H_

#include <stdint.h>

namespace opwire::ops::sort {

// The first i >= from of the n elements at x whose key, with its bits flipped where `flip` is all
// ones, is below `bound`; n: none.
using FindBelow = int64_t (*)(const void* x, int64_t from, int64_t n, uint64_t flip,
                              uint64_t bound);
// By element type; null: none.
struct TopkLoops {
  FindBelow find[16];
};

const TopkLoops& TopkAvx2();
const TopkLoops& TopkAvx512();

}  // namespace opwire::ops::sort

#endif  // OPWIRE_KERNELS_OPS_SORT_CPU_LOOPS_H_

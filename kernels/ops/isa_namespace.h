// The namespace of code that is compiled once for each instruction set, so that no inline function
// built for one of them can be the one that the linker keeps for all. A file defines OPWIRE_ISA
// before it includes such a header; what needs no instruction set is in `portable`. Such headers
// use compiler builtins, never inline functions of the library.
#ifndef OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_
#define OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_

#ifndef OPWIRE_ISA
#define OPWIRE_ISA portable
#endif

#endif  // OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_

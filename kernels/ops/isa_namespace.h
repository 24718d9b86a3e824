// The namespace of code that is compiled once for each instruction set. Without it the linker may
// keep an inline function built for one instruction set for all of them. A file defines OPWIRE_ISA
// before it includes such a header. Code that needs no instruction set is in `portable`. Such
// headers use compiler builtins, never inline functions of the library.
#ifndef OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_
#define OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_

#ifndef OPWIRE_ISA
#define OPWIRE_ISA portable
#endif

namespace opwire::ops::OPWIRE_ISA {}  // namespace opwire::ops::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_ISA_NAMESPACE_H_

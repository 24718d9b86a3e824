// A group of columns as a kernel of the CPU: rows, which are the reduced axes, are cut into parts,
// each of which computes a few rows of a block of columns at a time and reduces them while the
// first cache holds them; what the parts came to is reduced last. Parts go by the sizes alone, so
// results do not depend on the number of threads.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ColumnKernel> fused, ColumnKernel::Make(program,
//       [&] { ... }));
//   const opw_kernel k = fused->kernel();
//   fused->functions().Compile(toolchain, cache);   // on another thread
#ifndef OPWIRE_KERNELS_FUSED_COLUMN_KERNEL_H_
#define OPWIRE_KERNELS_FUSED_COLUMN_KERNEL_H_

#include <functional>
#include <memory>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/column_program.h"
#include "kernels/fused/functions.h"

namespace opwire::fused {

class ColumnKernel {
 public:
  // RESOURCE_EXHAUSTED or INVALID_ARGUMENT where the program is too large for one kernel, or
  // malformed. REQUIRES: RowKernel::Available().
  static StatusOr<std::unique_ptr<ColumnKernel>> Make(const ColumnProgram& program,
                                                      std::function<void()> worth_it = nullptr);

  // REQUIRES: the program's Code; Make makes it.
  struct Code;
  explicit ColumnKernel(std::unique_ptr<Code> code);
  ~ColumnKernel();

  // Operands and results are the program's. A result of elements may share storage with an operand
  // of its type and shape. Results of columns are dense. The context is this kernel's code, which
  // must outlive what uses it.
  opw_kernel kernel() const;
  Functions& functions();

 private:
  const std::unique_ptr<Code> code_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_COLUMN_KERNEL_H_

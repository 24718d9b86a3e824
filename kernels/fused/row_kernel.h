// A group of rows as a kernel of the CPU: tiles of some rows at a time that stay in the second
// cache, all phases of a tile one after the other; rows that are too long for that, or too few, in
// parts, all parts of a phase before the next.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<RowKernel> fused, RowKernel::Make(program, [&] {
//       ... }));
//   const opw_kernel k = fused->kernel();
//   fused->functions().Compile(toolchain, cache);   // on another thread
#ifndef OPWIRE_KERNELS_FUSED_ROW_KERNEL_H_
#define OPWIRE_KERNELS_FUSED_ROW_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/functions.h"
#include "kernels/fused/row_program.h"

namespace opwire::fused {

class RowKernel {
 public:
  // Whether this processor has what reduces rows.
  static bool Available();
  // RESOURCE_EXHAUSTED where the program is too large for one kernel. REQUIRES: Available().
  static StatusOr<std::unique_ptr<RowKernel>> Make(const RowProgram& program,
                                                   std::function<void()> worth_it = nullptr);

  // REQUIRES: the program's Code; Make makes it.
  struct Code;
  explicit RowKernel(std::unique_ptr<Code> code);
  ~RowKernel();

  // Operands and results are the program's. A result may share storage with an operand of its type,
  // shape and place. Results of rows are dense. The context is this kernel's code, which must
  // outlive what uses it.
  opw_kernel kernel() const;
  Functions& functions();

 private:
  const std::unique_ptr<Code> code_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_ROW_KERNEL_H_

// An elementwise group as a kernel of the CPU.
//
//   FusedKernel fused(program, [&] { ... });         // is told when compiling it would pay
//   const opw_kernel k = fused.kernel();
//   fused.functions().Compile(toolchain, cache);     // on another thread
#ifndef OPWIRE_KERNELS_FUSED_FUSED_H_
#define OPWIRE_KERNELS_FUSED_FUSED_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/functions.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

class FusedKernel {
 public:
  // REQUIRES: program.Check().ok().
  explicit FusedKernel(const ScalarProgram& program, std::function<void()> worth_it = nullptr);

  // Its calls are those of Interpreter::kernel(). The context is this, which must outlive what uses
  // the kernel.
  opw_kernel kernel() const;
  Functions& functions() { return functions_; }

 private:
  static const FusedKernel& Of(const opw_call* c) {
    return *static_cast<const FusedKernel*>(c->context);
  }

  Functions functions_;
  const int inputs_, outputs_;
  std::vector<uint8_t> types_;  // the inputs', then the outputs'
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_FUSED_H_

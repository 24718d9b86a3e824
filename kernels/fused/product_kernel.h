// A product of many rows with what becomes of it, as a kernel of the CPU: a tile of rows and
// columns at a time, whose sums stay in the caches until they are finished.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ProductKernel> fused,
//       ProductKernel::Make(program, [&] { ... }));
//   const opw_kernel k = fused->kernel();
//   fused->functions().Compile(toolchain, cache);   // on another thread
#ifndef OPWIRE_KERNELS_FUSED_PRODUCT_KERNEL_H_
#define OPWIRE_KERNELS_FUSED_PRODUCT_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/functions.h"
#include "kernels/fused/product_program.h"

namespace opwire::fused {

class ProductKernel {
 public:
  // UNIMPLEMENTED for products of few rows, for those whose result the caches hold anyway, and for
  // other types than f32.
  static StatusOr<std::unique_ptr<ProductKernel>> Make(const ProductProgram& program,
                                                       std::function<void()> worth_it = nullptr);

  // Operands and results are the program's, dense. The context is this, which must outlive what
  // uses the kernel.
  opw_kernel kernel() const;
  Functions& functions() { return functions_; }

 private:
  struct State;
  ProductKernel(const ProductProgram& program, std::function<void()> worth_it);
  static const ProductKernel& Of(const opw_call* c) {
    return *static_cast<const ProductKernel*>(c->context);
  }
  static const char* Supports(const opw_call* c);
  static int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes);
  static void Release(void* state);
  static int Run(const opw_call* c);

  const int64_t rows_, terms_, columns_;
  const std::vector<bool> by_row_;  // by tensor that is read behind the sums
  const int inputs_, outputs_;      // of what finishes them, the sums among the inputs
  std::vector<uint8_t> types_;      // of the call's operands, then its results
  Functions functions_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_PRODUCT_KERNEL_H_

// Elementwise groups as kernels: interpreted at once, compiled in the background, and then switched over, with equal bits.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::shared_ptr<FusedKernel> fused, CompileElementwise(program, toolchain, cache, submit));
//   const opw_kernel k = fused->kernel();      // use it now; it becomes faster by itself
//   if (!fused->compiled()) log(fused->status());
#ifndef OPWIRE_KERNELS_FUSED_FUSED_H_
#define OPWIRE_KERNELS_FUSED_FUSED_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/interpreter.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/library.h"
#include "kernels/jit/toolchain.h"

namespace opwire::fused {

class FusedKernel {
 public:
  // REQUIRES: program.Check().ok().
  explicit FusedKernel(const ScalarProgram& program) : interpreter_(program) {}
  FusedKernel(const FusedKernel&) = delete;
  FusedKernel& operator=(const FusedKernel&) = delete;

  // Its calls are those of Interpreter::kernel(). A run is interpreted or compiled as a whole, whichever prepared its state. The
  // context is this, which must outlive what uses the kernel.
  opw_kernel kernel() const;

  // Any thread.
  bool compiled() const { return run_.load(std::memory_order_acquire) != nullptr; }
  // OK: compiled. UNAVAILABLE: not yet. Another: why it stays interpreted.
  Status status() const;

  // Compiles now, on the calling thread, and switches over. To be called once.
  void Compile(const ScalarProgram& program, jit::Toolchain& toolchain, jit::BuildCache& cache);

 private:
  static const FusedKernel& Of(const opw_call* c) { return *static_cast<const FusedKernel*>(c->context); }
  static opw_call Inner(const opw_call* c);

  const Interpreter interpreter_;
  const opw_kernel interpreted_ = interpreter_.kernel();
  std::atomic<int (*)(const opw_call*)> run_{nullptr};  // compiled
  std::shared_ptr<const jit::Library> library_;
  mutable std::mutex mutex_;
  Status status_ = Unavailable("it is being compiled");
};

// Hands a task to another thread, or runs it.
using Submit = std::function<void(std::function<void()>)>;

// The program's kernel, which interprets until the task that this submits has compiled it. The task keeps the kernel alive;
// toolchain and cache must outlive the task. The errors of ScalarProgram::Check; a compilation that fails is told by status().
StatusOr<std::shared_ptr<FusedKernel>> CompileElementwise(const ScalarProgram& program, jit::Toolchain& toolchain,
                                                          jit::BuildCache& cache, const Submit& submit);

// What units for this processor are compiled for: "x86-64-v4", "x86-64-v3"; empty where it has no AVX2, and nothing is compiled.
std::string UnitArch();

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_FUSED_H_

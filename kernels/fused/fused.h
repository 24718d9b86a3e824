// An elementwise group as a kernel: interpreted at once, compiled when somebody does so, and then switched over, with equal bits.
//
//   FusedKernel fused(program, [&] { ... });   // is told when compiling it would pay
//   const opw_kernel k = fused.kernel();
//   fused.Compile(program, toolchain, cache);  // on another thread
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
  // What is interpreted in some tens of milliseconds, in elements times instructions.
  static constexpr int64_t kWorthCompiling = int64_t{1} << 28;

  // `worth_it` is called once, by a run, when so much was interpreted. REQUIRES: program.Check().ok().
  explicit FusedKernel(const ScalarProgram& program, std::function<void()> worth_it = nullptr)
      : interpreter_(program), instructions_(static_cast<int64_t>(program.instructions().size())), worth_it_(std::move(worth_it)) {}
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
  // It stays interpreted, for this reason.
  void SetStatus(Status status);

 private:
  static const FusedKernel& Of(const opw_call* c) { return *static_cast<const FusedKernel*>(c->context); }
  static opw_call Inner(const opw_call* c);
  int Interpret(const opw_call* c) const;

  const Interpreter interpreter_;
  const opw_kernel interpreted_ = interpreter_.kernel();
  const int64_t instructions_;
  const std::function<void()> worth_it_;
  mutable std::atomic<int64_t> interpreted_work_{0};
  std::atomic<int (*)(const opw_call*)> run_{nullptr};  // compiled
  std::shared_ptr<const jit::Library> library_;
  mutable std::mutex mutex_;
  Status status_ = Unavailable("it is being compiled");
};

// What units for this processor are compiled for: "x86-64-v4", "x86-64-v3"; empty where it has no AVX2, and nothing is compiled.
std::string UnitArch();

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_FUSED_H_

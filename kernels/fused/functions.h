// What runs scalar programs over stretches of elements: the interpreter at once, compiled code when
// somebody compiles it, with equal bits.
//
//   Functions functions({a, b}, [&] { ... });           // is told when compiling them would pay
//   const std::span<const Functions::One> now = functions.Now();
//   rows.context = now[1].context, now[1].run(rows);    // b
//   functions.Compile(toolchain, cache);                // on another thread
#ifndef OPWIRE_KERNELS_FUSED_FUNCTIONS_H_
#define OPWIRE_KERNELS_FUSED_FUNCTIONS_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ir/base/status.h"
#include "kernels/fused/interpreter.h"
#include "kernels/fused/rows.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/library.h"
#include "kernels/jit/toolchain.h"

namespace opwire::fused {

class Functions {
 public:
  // What is interpreted in some tens of milliseconds, in elements times instructions.
  static constexpr int64_t kWorthCompiling = int64_t{1} << 28;

  struct One {
    RowFunction run;
    const void* context;  // Rows::context
  };

  // `worth_it` is called once, by Worked, when so much was interpreted. REQUIRES: each
  // Check().ok(), and at least one.
  explicit Functions(std::vector<ScalarProgram> programs, std::function<void()> worth_it = nullptr);
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;

  const std::vector<ScalarProgram>& programs() const { return programs_; }

  // By program. A run takes them once, so that it is interpreted or compiled as a whole. Any
  // thread.
  std::span<const One> Now() const {
    return compiled() ? std::span(compiled_) : std::span(interpreted_);
  }
  bool compiled() const { return is_compiled_.load(std::memory_order_acquire); }
  // After a run over so many elements.
  void Worked(int64_t elements) const;

  // OK: compiled. UNAVAILABLE: not yet. Another: why they stay interpreted.
  Status status() const;
  // Compiles now, on the calling thread, and switches over. To be called once.
  void Compile(jit::Toolchain& toolchain, jit::BuildCache& cache);
  // They stay interpreted, for this reason.
  void SetStatus(Status status);

 private:
  const std::vector<ScalarProgram> programs_;
  std::deque<Interpreter> interpreters_;
  std::vector<One> interpreted_, compiled_;
  int64_t instructions_ = 0;
  const std::function<void()> worth_it_;
  mutable std::atomic<int64_t> interpreted_work_{0};
  std::atomic<bool> is_compiled_{false};  // set after compiled_, which then stays
  std::shared_ptr<const jit::Library> library_;
  mutable std::mutex mutex_;
  Status status_ = Unavailable("it is being compiled");
};

// What units for this processor are compiled for: "x86-64-v4", "x86-64-v3"; empty where it has no
// AVX2, and nothing is compiled.
std::string UnitArch();

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_FUNCTIONS_H_

// Fused kernels of the CPU, and the thread that compiles them.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "kernels/fused/by_source.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fuser.h"

namespace opwire::fused {
namespace {

constexpr int kNice = 10;  // of what compiles, beside what runs

// Compiles what is handed to it. Kernels hold it, also when nobody asks for more of them.
class Compiler {
 public:
  explicit Compiler(HostFuserOptions options) : options_(std::move(options)), toolchain_(jit::HostCompiler({.worker = options_.worker})) {}

  // One thread, which begins with the first task.
  void Submit(std::weak_ptr<FusedKernel> kernel, ScalarProgram program) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    queue_.push_back({std::move(kernel), std::move(program)});
    if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
    wake_.notify_one();
  }
  bool Settled() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !compiling_;
  }
  // Ends after what is being compiled.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Task {
    std::weak_ptr<FusedKernel> kernel;
    ScalarProgram program;
  };

  void Loop() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
    const auto cache = jit::BuildCache::Open({.directory = options_.cache});
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return ended_ || !queue_.empty(); });
      if (ended_) return;
      Task task = std::move(queue_.front());
      queue_.pop_front();
      compiling_ = true;
      lock.unlock();
      // Nobody holds it any more: nothing is to be done.
      if (const auto kernel = task.kernel.lock()) {
        if (cache.ok()) kernel->Compile(task.program, *toolchain_, **cache);
        else kernel->SetStatus(cache.status());
      }
      lock.lock();
      compiling_ = false;
    }
  }

  const HostFuserOptions options_;
  const std::unique_ptr<jit::Toolchain> toolchain_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool compiling_ = false, ended_ = false;
  std::thread thread_;
};

class HostFuser final : public Fuser {
 public:
  explicit HostFuser(HostFuserOptions options) : compiler_(std::make_shared<Compiler>(std::move(options))) {}
  ~HostFuser() override { compiler_->Stop(); }

  std::shared_ptr<const opw_kernel> Get(const ScalarProgram& program) override {
    const std::shared_ptr<Entry> entry = kernels_.Get(program, [&] { return Make(program); });
    return {entry, &entry->kernel};
  }
  bool Settled() const override { return compiler_->Settled(); }

 private:
  struct Entry {
    std::shared_ptr<FusedKernel> fused;
    opw_kernel kernel;
  };

  std::shared_ptr<Entry> Make(const ScalarProgram& program) {
    auto entry = std::make_shared<Entry>();
    entry->fused = std::make_shared<FusedKernel>(program, [compiler = compiler_, weak = std::weak_ptr(entry), program] {
      if (const auto held = weak.lock()) compiler->Submit(held->fused, program);
    });
    entry->kernel = entry->fused->kernel();
    return entry;
  }

  const std::shared_ptr<Compiler> compiler_;
  BySource<Entry> kernels_;
};

}  // namespace

std::shared_ptr<Fuser> MakeHostFuser(HostFuserOptions options) { return std::make_shared<HostFuser>(std::move(options)); }

}  // namespace opwire::fused

// Fused kernels of the CPU, and the thread that compiles them.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "kernels/fused/by_source.h"
#include "kernels/fused/column_kernel.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fuser.h"
#include "kernels/fused/joint.h"
#include "kernels/fused/product_kernel.h"
#include "kernels/fused/row_kernel.h"

namespace opwire::fused {
namespace {

constexpr int kNice = 10;  // of what compiles, beside what runs

// Compiles what is handed to it. Kernels hold it, also when nobody asks for more of them.
class Compiler {
 public:
  explicit Compiler(HostFuserOptions options)
      : options_(std::move(options)), toolchain_(jit::HostCompiler({.worker = options_.worker})) {}

  // One thread, which begins with the first task.
  void Submit(std::weak_ptr<Functions> functions) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    queue_.push_back(std::move(functions));
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
  void Loop() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
    const auto cache = jit::BuildCache::Open({.directory = options_.cache});
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return ended_ || !queue_.empty(); });
      if (ended_) return;
      const std::weak_ptr<Functions> task = std::move(queue_.front());
      queue_.pop_front();
      compiling_ = true;
      lock.unlock();
      // Nobody holds it any more: nothing is to be done.
      if (const auto functions = task.lock()) {
        if (cache.ok())
          functions->Compile(*toolchain_, **cache);
        else
          functions->SetStatus(cache.status());
      }
      lock.lock();
      compiling_ = false;
    }
  }

  const HostFuserOptions options_;
  const std::unique_ptr<jit::Toolchain> toolchain_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::weak_ptr<Functions>> queue_;
  bool compiling_ = false, ended_ = false;
  std::thread thread_;
};

class HostFuser final : public Fuser {
 public:
  explicit HostFuser(HostFuserOptions options)
      : compiler_(std::make_shared<Compiler>(std::move(options))) {}
  ~HostFuser() override { compiler_->Stop(); }

  std::shared_ptr<const opw_kernel> Get(const ScalarProgram& program) override {
    return KernelOf(EntryOf(program));
  }
  std::shared_ptr<const opw_kernel> GetJoint(const ScalarProgram& program, int members) override {
    const auto entry = joint_.Get(fmt::format("{} {}", members, program.Identity()), [&] {
      return std::make_shared<JointEntry>(EntryOf(program), members);
    });
    return {entry, &entry->kernel};
  }
  bool HasJoint() const override { return true; }
  std::shared_ptr<const opw_kernel> GetRows(const RowProgram& program) override {
    return KernelOf(MadeOf(rows_, program));
  }
  bool HasRows() const override { return RowKernel::Available(); }
  std::shared_ptr<const opw_kernel> GetColumns(const ColumnProgram& program) override {
    return KernelOf(MadeOf(columns_, program));
  }
  bool HasColumns() const override { return RowKernel::Available(); }
  std::shared_ptr<const opw_kernel> GetProducts(const ProductProgram& program) override {
    return KernelOf(MadeOf(products_, program));
  }
  bool HasEpilogues() const override { return true; }
  bool Settled() const override { return compiler_->Settled(); }

 private:
  template <typename Kernel>
  struct Entry {
    std::unique_ptr<Kernel> made;
    opw_kernel kernel;
  };
  // By the functions that the program has for one member, so that it is compiled once.
  struct JointEntry {
    JointEntry(const std::shared_ptr<Entry<FusedKernel>>& one, int members)
        : made(std::shared_ptr<const Functions>(one, &one->made->functions()), members),
          kernel(made.kernel()) {}
    const JointKernel made;
    const opw_kernel kernel;
  };

  std::shared_ptr<Entry<FusedKernel>> EntryOf(const ScalarProgram& program) {
    return EntryOf(elementwise_, program, [&](auto worth_it) {
      return std::make_unique<FusedKernel>(program, std::move(worth_it));
    });
  }
  template <typename Kernel, typename Program, typename Make>
  std::shared_ptr<Entry<Kernel>> EntryOf(BySource<Entry<Kernel>>& known, const Program& program,
                                         const Make& make) {
    return known.Get(program.Identity(), [&] {
      auto out = std::make_shared<Entry<Kernel>>();
      out->made = make([compiler = compiler_, weak = std::weak_ptr(out)] {
        if (const auto held = weak.lock())
          compiler->Submit(std::shared_ptr<Functions>(held, &held->made->functions()));
      });
      if (out->made) out->kernel = out->made->kernel();
      return out;
    });
  }
  // Without a kernel where the program cannot be one.
  template <typename Kernel, typename Program>
  std::shared_ptr<Entry<Kernel>> MadeOf(BySource<Entry<Kernel>>& known, const Program& program) {
    return EntryOf(known, program, [&](auto worth_it) {
      auto made = Kernel::Make(program, std::move(worth_it));
      return made.ok() ? *std::move(made) : nullptr;
    });
  }
  template <typename Kernel>
  static std::shared_ptr<const opw_kernel> KernelOf(const std::shared_ptr<Entry<Kernel>>& entry) {
    return entry->made ? std::shared_ptr<const opw_kernel>(entry, &entry->kernel) : nullptr;
  }

  const std::shared_ptr<Compiler> compiler_;
  BySource<Entry<FusedKernel>> elementwise_;
  BySource<Entry<RowKernel>> rows_;
  BySource<Entry<ColumnKernel>> columns_;
  BySource<Entry<ProductKernel>> products_;
  BySource<JointEntry> joint_;
};

}  // namespace

std::shared_ptr<Fuser> MakeHostFuser(HostFuserOptions options) {
  return std::make_shared<HostFuser>(std::move(options));
}

}  // namespace opwire::fused
